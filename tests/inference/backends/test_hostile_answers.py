"""
Every attack of a backend: the client gets an answer or an error in good form and in time, and the reservation
ends exactly once. The books are checked after each.

All of them at once, as JSON too, beside a neighbour: tests/e2e/attacks/test_hostile_backends.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from billing.models import Reservation
from gateway_site.http_client.client import Timeouts
from inference.backends import registry
from inference.tokenizer import counter
from tests.harness.client import Answer
from tests.harness.error_checks import assert_error
from tests.inference.backends.upstreams.hostile.answers import ATTACKS
from tests.inference.backends.upstreams.hostile.server import hostile_upstream
from tests.inference.customer import ApiCustomer, records

HASTY = Timeouts(connect=2, first_byte=0.5, between_bytes=0.5, total=20)
DEADLINE_SECONDS = 1
# In which a client has its answer, on a machine that is busy with other tests.
PATIENCE_SECONDS = 10
# How requests may end: None is an answer, though perhaps an odd one.
CODES = {None, "backend_failed", "deadline_exceeded", "provider_rejected"}
# What must be an answer, and what must not.
ANSWERS = {"good", "drip", "words_after_done", "done_for_ever", "answers_twice", "answers_again_later"}
ANSWERS |= {"usage_huge", "nul_bytes", "name_of_a_megabyte", "nul_in_a_text"}
ANSWERS |= {"flood", "flood_in_chunks"}  # cut at their output bound
REJECTED = {"refusal_without_end"}
LATE = {"drip_for_ever", "head_drip_for_ever", "silence_after_words"}

# Its upstream is another process.
pytestmark = [pytest.mark.one_database, pytest.mark.slow]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    counter("o200k_base")  # read before there is a deadline
    with hostile_upstream() as running:
        yield running


@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_attack_ends_in_good_form_and_in_time(
    customer: ApiCustomer, url: str, name: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.client, "timeouts", HASTY)
    settings.GATEWAY_DEADLINE_SECONDS = DEADLINE_SECONDS
    customer.serve(name, url)
    started = time.monotonic()

    answer = customer.ask(name, stream=True, max_tokens=100)

    assert time.monotonic() - started < PATIENCE_SECONDS
    code = code_of(answer)
    assert code in CODES
    assert (code is None) == (name in ANSWERS) or name.startswith(("call", "length", "fragments"))
    assert (code == "provider_rejected") == (name in REJECTED)
    assert name not in LATE or code == "deadline_exceeded"
    assert b"STOLEN" not in answer.body
    assert Reservation.objects.get().state != Reservation.State.HELD
    assert customer.activity().code == (code or "")


def code_of(answer: Answer) -> str | None:
    """What the request failed with. Whatever it ended with is in the form that clients know."""
    if answer.status != 200:
        assert_error(answer, answer.status, answer.json["error"]["code"])
        return str(answer.json["error"]["code"])
    *_, last = records(answer.body)
    if last == "[DONE]":
        return None
    assert last["error"]["request_id"] == answer.headers["x-request-id"]
    return str(last["error"]["code"])
