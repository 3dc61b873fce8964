"""What a request costs that a policy ends: nothing before the answer, and what was generated of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from billing.models import ChargeBasis, EndedBy
from policies.enforcement.judging import score_cache
from tests.inference.customer import ApiCustomer
from tests.inference.serving.policy_requests import SAID, ask, publish

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
ENDPOINTS = pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": SAID}]}),
        ("/v1/responses", {"input": SAID}),
    ],
    ids=["chat", "responses"],
)


@pytest.fixture(autouse=True)
def _nothing_judged_before() -> None:
    score_cache.clear()


@BOTH
@ENDPOINTS
@pytest.mark.parametrize("is_speculative", [False, True], ids=["judged first", "speculative"])
def test_a_request_that_a_policy_refuses_is_free(
    customer: ApiCustomer,
    settings: Any,
    endpoint: str,
    fields: dict[str, Any],
    stream: bool,
    is_speculative: bool,
) -> None:
    settings.GATEWAY_JUDGE_SPECULATIVELY = is_speculative
    customer.simulate("echo")
    publish(customer.project.organization, direction="request")

    assert ask(customer, endpoint, stream=stream, **fields).status == 403

    row = customer.reservation()
    assert (row.state, row.ended_by) == ("released", EndedBy.POLICY)
    assert customer.activity().cost_nanousd == 0


@ENDPOINTS
def test_a_stream_that_a_policy_ends_midway_costs_what_was_generated(
    customer: ApiCustomer, settings: Any, endpoint: str, fields: dict[str, Any]
) -> None:
    settings.GATEWAY_JUDGE_WINDOW_CHARACTERS = 40
    customer.simulate("echo")
    publish(customer.project.organization, direction="response")

    ask(customer, endpoint, stream=True, **fields)

    row = customer.reservation()
    assert (row.state, row.basis, row.ended_by) == ("settled", ChargeBasis.OBSERVED, EndedBy.POLICY)
    assert row.used_quantities is not None
    assert 0 < row.used_quantities.completion < 40
    assert customer.activity().cost_nanousd == row.charged_nanousd


@ENDPOINTS
def test_json_that_a_policy_withholds_costs_what_was_generated(
    customer: ApiCustomer, endpoint: str, fields: dict[str, Any]
) -> None:
    customer.simulate("echo")
    publish(customer.project.organization, direction="response")

    assert ask(customer, endpoint, **fields).status == 403

    row = customer.reservation()
    assert (row.state, row.basis, row.ended_by) == ("settled", ChargeBasis.USAGE, EndedBy.COMPLETE)
