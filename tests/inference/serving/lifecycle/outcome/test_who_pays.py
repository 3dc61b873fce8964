"""
Who pays for a request, by who ended it and by what was seen of its answer: one test for each case.

Every case on both endpoints, as JSON and as a stream, and with every kind of backend that can bring it about.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from billing.models import Account, ChargeBasis, EndedBy
from billing.prices.price import Quantities
from inference.serving.lifecycle import request_task
from inference.serving.lifecycle.cancellation import CancelReason
from inference.serving.load_balancing.load_balancer import load_balancer
from organization.models import Organization
from policies.enforcement.request_policies import RequestPolicies
from tests.inference.customer import HELLO
from tests.inference.serving.expected_usage import count, observed
from tests.inference.serving.lifecycle.outcome.ways import (
    UNREACHABLE,
    Gateway,
    Way,
    every_way,
    generation_when,
    until_seen,
    until_sent,
)
from tests.inference.serving.paced_client import Caller

CLIENT_CLOSED = 499


def cancel_all(reason: CancelReason) -> None:
    for request in list(request_task.running_requests):
        request.cancel(reason)


# --- the answer was complete -------------------------------------------------------------------------


@every_way()
def test_a_complete_answer_is_charged_as_reported(gateway: Gateway, way: Way, rival: Organization) -> None:
    gateway.serve(way, "ok", "echo")

    assert gateway.ask(way).status == 200

    gateway.assert_charged(way.reported(count(HELLO)), ChargeBasis.USAGE, EndedBy.COMPLETE, 200)
    assert not Account.objects.filter(pk=rival.pk, settled_nanousd__gt=0).exists()


@every_way()
def test_a_complete_answer_without_usage_is_counted(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "no_usage", "usage-none")

    assert gateway.ask(way).status == 200

    simulated = Quantities(prompt=observed(0).prompt, completion=count(HELLO))
    used = simulated if way.is_simulated else way.seen()
    gateway.assert_charged(used, ChargeBasis.OBSERVED, EndedBy.COMPLETE, 200)


@every_way(is_simulated=False)
def test_an_empty_answer_without_usage_costs_its_prompt(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "no_usage_empty")

    assert gateway.ask(way).status == 200

    gateway.assert_charged(observed(0), ChargeBasis.OBSERVED, EndedBy.COMPLETE, 200)


# --- the client left ---------------------------------------------------------------------------------


@every_way(stream=True)
def test_who_leaves_before_the_first_word_pays_for_the_prompt(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "hang_before_headers", "fails-hang")

    async def leave(caller: Caller) -> None:
        await until_sent()
        caller.disconnect()

    caller = gateway.ask(way, leave)

    assert caller.messages == []
    gateway.assert_charged(observed(0), ChargeBasis.ESTIMATED, EndedBy.CLIENT, CLIENT_CLOSED)


@every_way(stream=True, kind="anthropic")
def test_a_prompt_that_the_backend_has_counted_is_charged_by_that_count(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "hang_midstream?tokens=0&prompt=30")

    async def leave(caller: Caller) -> None:
        await generation_when(lambda generation: generation._meter.prompt_estimate().prompt == 30)
        caller.disconnect()

    gateway.ask(way, leave)

    used = Quantities(prompt=30)
    gateway.assert_charged(used, ChargeBasis.ESTIMATED, EndedBy.CLIENT, CLIENT_CLOSED)


@every_way(stream=False)
def test_json_whose_client_left_is_awaited_and_charged_as_reported(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "ok?wait=0.2", "paced-2x10")

    async def leave(caller: Caller) -> None:
        await until_sent()
        caller.disconnect()

    caller = gateway.ask(way, leave)

    assert caller.messages == []
    gateway.assert_charged(way.reported(2), ChargeBasis.USAGE, EndedBy.CLIENT, CLIENT_CLOSED)


@every_way()
def test_who_leaves_midway_pays_for_what_was_seen(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "hang_midstream", "fails-hang-midway")

    async def leave(caller: Caller) -> None:
        await until_seen(way.words)
        caller.disconnect()

    gateway.ask(way, leave)

    gateway.assert_charged(way.seen(), ChargeBasis.OBSERVED, EndedBy.CLIENT, CLIENT_CLOSED)


@every_way()
def test_who_leaves_before_a_backend_was_asked_pays_nothing(
    gateway: Gateway, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.serve(way, "ok", "echo")
    callers: list[Caller] = []

    async def leave_while_judged(self: RequestPolicies, *args: Any, **options: Any) -> None:
        callers[0].disconnect()
        await asyncio.Event().wait()

    async def remember(caller: Caller) -> None:
        callers.append(caller)

    monkeypatch.setattr(RequestPolicies, "check_request", leave_while_judged)
    gateway.ask(way, remember)

    gateway.assert_released(EndedBy.CLIENT, CLIENT_CLOSED)
    assert not gateway.upstream.exchanges


# --- the client left, and JSON is awaited ------------------------------------------------------------


@every_way(stream=False, dialect="chat")
@pytest.mark.parametrize("reason", [CancelReason.DEADLINE, CancelReason.SHUTDOWN])
def test_an_awaited_answer_ends_with_the_deadline_or_the_process(
    gateway: Gateway, way: Way, reason: CancelReason
) -> None:
    gateway.serve(way, "hang_before_headers", "fails-hang")

    async def leave(caller: Caller) -> None:
        await until_sent()
        caller.disconnect()
        await generation_when(lambda generation: generation.has_client_left)
        cancel_all(reason)

    assert gateway.ask(way, leave).messages == []
    gateway.assert_unknown(reason.ended_by, CLIENT_CLOSED)


@every_way(stream=False, dialect="chat", is_simulated=False)
def test_an_awaited_answer_that_fails_is_unknown(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "reset_before_headers?wait=0.2")

    async def leave(caller: Caller) -> None:
        await until_sent()
        caller.disconnect()

    assert gateway.ask(way, leave).messages == []
    gateway.assert_unknown(EndedBy.BACKEND, CLIENT_CLOSED)


@every_way(stream=False, kind="openai_chat")
def test_no_other_deployment_is_asked_for_a_client_that_left(gateway: Gateway, way: Way) -> None:
    load_balancer.forget()
    gateway.serve(way, "error_first?wait=0.2", weight=1_000_000)
    gateway.serve(way, "ok", weight=1)

    async def leave(caller: Caller) -> None:
        await until_sent()
        caller.disconnect()

    assert gateway.ask(way, leave).messages == []
    gateway.assert_released(EndedBy.BACKEND, CLIENT_CLOSED)
    assert len(gateway.upstream.exchanges) == 1


# --- the backend refused, or could not be reached ----------------------------------------------------


@every_way()
@pytest.mark.parametrize(
    ("script", "simulated", "status"),
    [("400", "fails-rejected", 422), ("503", "fails-500", 502)],
)
def test_what_a_backend_refuses_is_free(
    gateway: Gateway, way: Way, script: str, simulated: str, status: int
) -> None:
    gateway.serve(way, script, simulated)

    caller = gateway.ask(way)

    assert caller.status == status
    assert not tells_not_to_retry(caller)
    gateway.assert_released(EndedBy.BACKEND, status)


@every_way()
def test_a_backend_that_cannot_be_reached_is_free(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "ok", "fails-refused", url=UNREACHABLE)

    caller = gateway.ask(way)

    assert caller.status == 502
    assert not tells_not_to_retry(caller)
    gateway.assert_released(EndedBy.BACKEND, 502)


# --- the backend failed, was cut, or passed the deadline; the process was stopped --------------------


@every_way()
def test_a_backend_that_breaks_off_before_the_first_word_is_unknown(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "reset_before_headers", "fails-reset")

    caller = gateway.ask(way)

    assert caller.status == 502
    assert tells_not_to_retry(caller)
    gateway.assert_unknown(EndedBy.BACKEND, 502)


@every_way()
def test_a_backend_that_breaks_off_midway_is_paid_for_what_was_seen(gateway: Gateway, way: Way) -> None:
    gateway.serve(way, "reset_midstream", "fails-cut-midway")

    caller = gateway.ask(way)

    assert caller.status == (200 if way.stream else 502)
    assert way.stream or tells_not_to_retry(caller)
    gateway.assert_charged(way.seen(), ChargeBasis.OBSERVED, EndedBy.BACKEND, 502)


STOPPED = pytest.mark.parametrize(
    ("reason", "status"),
    [(CancelReason.DEADLINE, 504), (CancelReason.SHUTDOWN, 503)],
    ids=["deadline", "stop"],
)


@every_way()
@STOPPED
def test_what_is_stopped_before_the_first_word_is_unknown(
    gateway: Gateway, way: Way, reason: CancelReason, status: int
) -> None:
    gateway.serve(way, "hang_before_headers", "fails-hang")

    async def stop(caller: Caller) -> None:
        await until_sent()
        cancel_all(reason)

    caller = gateway.ask(way, stop)

    assert caller.status == status
    assert tells_not_to_retry(caller)
    gateway.assert_unknown(reason.ended_by, status)


@every_way()
@STOPPED
def test_what_is_stopped_midway_is_paid_for_what_was_seen(
    gateway: Gateway, way: Way, reason: CancelReason, status: int
) -> None:
    gateway.serve(way, "hang_midstream", "fails-hang-midway")

    async def stop(caller: Caller) -> None:
        await until_seen(way.words)
        cancel_all(reason)

    caller = gateway.ask(way, stop)

    assert caller.status == (200 if way.stream else status)
    assert way.stream or tells_not_to_retry(caller)
    gateway.assert_charged(way.seen(), ChargeBasis.OBSERVED, reason.ended_by, status)


def tells_not_to_retry(caller: Caller) -> bool:
    return (b"x-should-retry", b"false") in caller.messages[0]["headers"]
