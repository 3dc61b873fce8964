"""A prompt that an enforcing policy refuses does not reach the backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from billing.models import Reservation
from policies.enforcement.judging import score_cache
from policies.judges.quoted import QuotedJudge
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.customer import ApiCustomer
from tests.inference.serving.policy_requests import SAID, USER, ask, publish

JUDGE_SECONDS = 0.5
FORBIDDEN = [{"role": "user", "content": SAID}]
WAYS = [
    ("/v1/chat/completions", {"messages": FORBIDDEN}),
    ("/v1/chat/completions", {"messages": FORBIDDEN, "stream": True}),
    ("/v1/chat/completions", {"messages": FORBIDDEN, "web_search_options": {}}),
    ("/v1/responses", {"input": SAID}),
    ("/v1/responses", {"input": SAID, "stream": True}),
]


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyUpstream]:
    """A backend, and a judge that takes its time unless the backend is asked before it has answered."""
    score_cache.clear()
    answer_at_once = QuotedJudge.score
    with upstream_in_thread() as upstream:

        async def answer_late(self: QuotedJudge, rule: str, text: str, *, salt: str = "") -> float:
            until = time.monotonic() + JUDGE_SECONDS
            while not upstream.exchanges and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the other thread has no way to tell
            return await answer_at_once(self, rule, text, salt=salt)

        monkeypatch.setattr(QuotedJudge, "score", answer_late)
        yield upstream


@pytest.mark.slow
@pytest.mark.parametrize(("endpoint", "fields"), WAYS)
def test_not_a_byte_of_a_refused_prompt_leaves(
    customer: ApiCustomer, upstream: FaultyUpstream, endpoint: str, fields: dict[str, Any]
) -> None:
    customer.serve("ok", upstream.url)
    publish(customer.project.organization, direction="request")

    answer = ask(customer, endpoint, **fields | {"model": "ok"})

    assert answer.status == 403
    assert not upstream.exchanges
    assert customer.reservation().state == Reservation.State.RELEASED


@pytest.mark.slow
def test_a_prompt_that_passes_is_answered(customer: ApiCustomer, upstream: FaultyUpstream) -> None:
    customer.serve("ok", upstream.url)
    publish(customer.project.organization, direction="request")

    answer = ask(customer, "/v1/chat/completions", messages=[USER], model="ok")

    assert answer.status == 200
    assert len(upstream.exchanges) == 1


def test_a_deployment_may_let_the_backend_start_meanwhile(
    customer: ApiCustomer, upstream: FaultyUpstream, settings: Any
) -> None:
    settings.GATEWAY_JUDGE_SPECULATIVELY = True
    customer.serve("ok", upstream.url)
    publish(customer.project.organization, direction="request")

    answer = ask(customer, "/v1/chat/completions", messages=FORBIDDEN, model="ok")

    assert answer.status == 403
    assert len(upstream.exchanges) == 1
    assert customer.account.settled_nanousd == 0
