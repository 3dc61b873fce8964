"""
Every way in which a backend can end a request, as JSON and as a stream: what the client is told, that the
backend is let go, and what becomes of the money. The backend is a real server that fails on request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from billing import services
from billing.models import ReservationState
from billing.prices.bill import charge
from billing.prices.price import Quantities
from gateway_site.http_client.client import Timeouts
from inference.backends import registry
from tests.factories import SOMEONE
from tests.harness.client import Answer
from tests.harness.error_checks import assert_error
from tests.inference.backends.upstreams.faulty.answers import OVER_HOLD
from tests.inference.backends.upstreams.faulty.server import (
    FaultyUpstream,
    upstream_in_thread,
    wait_until_closed,
)
from tests.inference.customer import HELLO, ApiCustomer, records
from tests.inference.serving.expected_usage import PRICE, UPSTREAM_PROMPT, count, observed, reported

State = ReservationState
HASTY = Timeouts(connect=1, first_byte=0.7, between_bytes=0.4, total=20)


@dataclass(frozen=True)
class Row:
    """How asking for `model` ends. `code` is None for an answer; `late` is one that fails after words."""

    model: str
    status: int
    code: str | None
    state: State
    used: Quantities | None = None
    basis: str = ""
    late: bool = False


def _fine(model: str, used: Quantities, basis: str = "usage") -> Row:
    return Row(model, 200, None, State.SETTLED, used, basis)


def _free(model: str, status: int, code: str) -> Row:
    return Row(model, status, code, State.RELEASED)


def _unknown(model: str, status: int = 502, code: str = "backend_failed") -> Row:
    return Row(model, status, code, State.UNKNOWN)


def _late(model: str, words: int = 5, status: int = 502, code: str = "backend_failed") -> Row:
    return Row(model, status, code, State.SETTLED, observed(words), "observed", late=True)


ROWS = [
    _fine("ok", reported()),
    _fine("json", reported()),
    _fine("ok_tools", reported(4)),
    _fine("ok_reasoning", reported()),
    _fine("cumulative", reported(20)),
    _fine("drip_bytes", reported()),
    _fine("no_done", reported()),
    _fine("no_finish", reported()),
    _fine("slow_headers", reported()),
    # The backend says no.
    _free("400", 422, "provider_rejected"),
    _free("413", 422, "provider_rejected"),
    _free("422", 422, "provider_rejected"),
    _free("429", 429, "backend_busy"),
    _free("529", 429, "backend_busy"),
    _free("501", 501, "unsupported_option"),
    _free("401", 502, "backend_failed"),
    _free("500_empty", 502, "backend_failed"),
    _free("500_html", 502, "backend_failed"),
    _free("503", 502, "backend_failed"),
    _free("redirect", 502, "backend_failed"),
    _free("error_first", 502, "backend_failed"),
    # Nobody knows.
    _unknown("reset_before_headers"),
    _unknown("close_before_headers"),
    _unknown("garbage_head"),
    _unknown("reset_after_headers"),
    _unknown("close_at_once"),
    _unknown("invalid_first"),
    _unknown("html"),
    _unknown("json_garbage"),
    _unknown("504", 504, "deadline_exceeded"),
    _unknown("hang_before_headers", 504, "deadline_exceeded"),
    _unknown("hang_after_headers", 504, "deadline_exceeded"),
    # After words were seen.
    _late("reset_midstream"),
    _late("cut_midstream"),
    _late("close_without_finish"),
    _late("error_midstream"),
    _late("invalid_json"),
    _late("wrong_index"),
    _late("huge_line"),
    _late("hang_midstream", status=504, code="deadline_exceeded"),
    # Usage that is missing or cannot be true.
    _fine("no_usage", observed(5), "observed"),
    _fine("usage_null", observed(5), "observed"),
    _fine("usage_zero", observed(5), "observed"),
    _fine("usage_negative", observed(5), "observed"),
    _fine("usage_float", observed(5), "observed"),
    _fine("usage_string", observed(5), "observed"),
    _fine("usage_bool", observed(5), "observed"),
    _fine("usage_nan", observed(5), "observed"),
    _fine("usage_huge", observed(5), "observed"),
    _fine("usage_over_bound", observed(5), "observed"),
    _fine("usage_zero_empty", reported(0, prompt=0)),
    _fine("usage_total", reported()),
    _fine("usage_cached", reported(cached=UPSTREAM_PROMPT)),
    _fine("usage_two", reported()),
    _fine("usage_shrinking", reported()),
]
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.model)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as running:
        yield running


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.client, "timeouts", HASTY)


@BOTH
@EVERY_ROW
def test_an_end(customer: ApiCustomer, upstream: FaultyUpstream, row: Row, stream: bool) -> None:
    customer.serve(row.model, upstream.url)

    answer = customer.ask(row.model, stream=stream)

    assert_client_sees(answer, row, stream)
    assert_accounted(customer, row)
    assert_let_go(upstream)


def assert_client_sees(answer: Answer, row: Row, stream: bool) -> None:
    if row.code is None:
        assert answer.status == 200, answer.body
        if stream:
            assert records(answer.body)[-1] == "[DONE]"
        else:
            assert answer.json["usage"]["completion_tokens"] == row.used.completion  # type: ignore[union-attr]
    elif stream and row.late:
        assert answer.status == 200
        *chunks, failure = records(answer.body)
        assert "[DONE]" not in chunks
        assert failure["error"]["code"] == row.code
        assert failure["error"]["request_id"] == answer.headers["x-request-id"]
        assert all("error" not in chunk for chunk in chunks)
    else:
        assert_error(answer, row.status, row.code)
        # Each repetition may be a paid run, unless it is known that this one was not.
        may_repeat = answer.headers.get("x-should-retry") != "false"
        assert may_repeat == (row.state == State.RELEASED and row.status != 501)


def assert_accounted(customer: ApiCustomer, row: Row) -> None:
    reservation = customer.reservation()
    assert (reservation.state, reservation.basis) == (row.state, row.basis)
    charged = None if row.state == State.UNKNOWN else charge(PRICE, row.used) if row.used else 0
    assert reservation.charged_nanousd == charged
    kept = reservation.reserved_nanousd if row.state == State.UNKNOWN else 0
    assert customer.account.held_nanousd == kept
    activity = customer.activity()
    assert activity.pk == reservation.pk
    assert activity.status == row.status
    assert activity.code == (row.code or "")
    assert activity.cost_nanousd == charged
    assert activity.attempts == 1


def assert_let_go(upstream: FaultyUpstream) -> None:
    """Where the backend itself would have gone on for ever, it was stopped in time."""
    exchange = upstream.last
    if exchange.model.startswith("hang") or exchange.model == "drip":
        loop = upstream._server.get_loop()
        asyncio.run_coroutine_threadsafe(wait_until_closed(exchange), loop).result(5)


@BOTH
def test_a_busy_backend_says_when_to_come_back(
    customer: ApiCustomer, upstream: FaultyUpstream, stream: bool
) -> None:
    customer.serve("429", upstream.url)

    assert customer.ask("429", stream=stream).headers["retry-after"] == "7"


@BOTH
def test_more_than_was_held_for_is_charged_as_far_as_credit_goes(
    customer: ApiCustomer, upstream: FaultyUpstream, stream: bool
) -> None:
    customer.serve("usage_over_hold", upstream.url)

    assert customer.ask("usage_over_hold", stream=stream, max_tokens=5).status == 200

    row = customer.reservation()
    assert (row.state, row.basis) == (State.SETTLED, "usage")
    assert row.charged_nanousd == row.reserved_nanousd == charge(PRICE, reported(OVER_HOLD))
    assert not row.operator_loss_nanousd


@BOTH
def test_what_credit_does_not_cover_is_the_operators_loss(
    poor: ApiCustomer, upstream: FaultyUpstream, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    credit = 1_000
    services.grant_credit(organization=poor.project.organization, amount_nanousd=credit, actor=SOMEONE)
    poor.serve("usage_over_hold", upstream.url)

    with caplog.at_level(logging.WARNING, "inference.serving.generation"):
        assert poor.ask("usage_over_hold", stream=stream, max_tokens=5).status == 200

    row = poor.reservation()
    assert row.charged_nanousd == credit
    assert row.operator_loss_nanousd == charge(PRICE, reported(OVER_HOLD)) - credit
    assert f"request {row.pk} of model usage_over_hold cost more" in caplog.text
    assert f"{row.operator_loss_nanousd} are lost" in caplog.text


@BOTH
@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://backend.invalid"])
def test_a_backend_that_cannot_be_reached(customer: ApiCustomer, address: str, stream: bool) -> None:
    customer.serve("ok", address)

    answer = customer.ask("ok", stream=stream)

    assert_error(answer, 502, "backend_unreachable")
    assert "x-should-retry" not in answer.headers
    assert customer.reservation().state == State.RELEASED


@pytest.mark.slow
@BOTH
def test_the_deadline_wins_over_a_backend_that_is_never_silent_for_long(
    customer: ApiCustomer, upstream: FaultyUpstream, settings: Any, stream: bool
) -> None:
    settings.GATEWAY_DEADLINE_SECONDS = 1
    customer.serve("drip", upstream.url)
    started = time.monotonic()

    answer = customer.ask("drip", stream=stream)

    assert time.monotonic() - started < 10
    words = upstream.last.tokens_emitted
    assert_client_sees(answer, _late("drip", words, 504, "deadline_exceeded"), stream)
    row = customer.reservation()
    assert (row.state, row.basis) == (State.SETTLED, "observed")
    # What was on its way when the gateway closed may not have been seen.
    assert row.charged_nanousd in [charge(PRICE, observed(seen)) for seen in (words - 1, words)]
    assert_let_go(upstream)


@pytest.mark.slow
@BOTH
def test_the_deadline_before_any_answer(
    customer: ApiCustomer,
    upstream: FaultyUpstream,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    settings.GATEWAY_DEADLINE_SECONDS = 1
    monkeypatch.setattr(registry.client, "timeouts", Timeouts())
    customer.serve("hang_before_headers", upstream.url)
    started = time.monotonic()

    answer = customer.ask("hang_before_headers", stream=stream)

    assert time.monotonic() - started < 10
    assert_error(answer, 504, "deadline_exceeded")
    assert answer.headers["x-should-retry"] == "false"
    assert customer.reservation().state == State.UNKNOWN
    assert_let_go(upstream)


@BOTH
@pytest.mark.parametrize("model", ["usage-zero", "usage-garbage", "usage-none"])
def test_usage_that_a_backend_let_through_is_looked_at_again(
    customer: ApiCustomer, model: str, stream: bool
) -> None:
    customer.simulate(model)

    assert customer.ask(model, stream=stream).status == 200

    row = customer.reservation()
    assert (row.state, row.basis) == (State.SETTLED, "observed")
    prompt = observed(0).prompt
    assert row.charged_nanousd == charge(PRICE, Quantities(prompt=prompt, completion=count(HELLO)))


@BOTH
def test_usage_that_falls_is_taken_at_its_highest(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("usage-falling")

    customer.ask("usage-falling", stream=stream)

    used = Quantities(prompt=count(HELLO), completion=count(HELLO) + 10)
    assert customer.reservation().charged_nanousd == charge(PRICE, used)
