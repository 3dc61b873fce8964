"""Disconnects, slow readers, keep-alive comments, heartbeats and the shutdown of the process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from billing.ledger.ledger import Ledger, close_ledger
from billing.models import Reservation
from gateway_site.lifespan import Lifespan
from inference.backends import registry
from inference.backends.simulator.backend import SimulatorBackend
from inference.dialects.chat.dialect import CHAT
from inference.serving.lifecycle import request_task
from inference.serving.response_sender import KEEP_ALIVE
from inference.serving.usage_meter import UsageMeter
from tests.inference.customer import HELLO, ApiCustomer
from tests.inference.serving.paced_client import Caller, run

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def simulator() -> SimulatorBackend:
    """The one that the last request of this process was served by."""
    (made,) = [backend for _, backend in registry._made.values() if isinstance(backend, SimulatorBackend)]
    return made


async def until_running() -> None:
    """Wait until the simulator is at work. It has no event for that, so it is polled."""
    async with asyncio.timeout(5):
        while not (registry._made and simulator().running):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_generated(words: int) -> None:
    """Wait until the only request generated so much, of which a client who waits for JSON sees nothing."""
    async with asyncio.timeout(5):
        while words_generated() < words:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def words_generated() -> int:
    for request in request_task.running_requests:
        if request.generation is not None and request.generation._meter.has_output:
            seen = request.generation._meter.usage()
            return 0 if seen is None else seen.completion_tokens
    return 0


@pytest.fixture(autouse=True)
def _fresh_backends() -> None:
    registry._made.clear()


def test_it_works(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    async def story() -> bytes:
        caller = Caller(customer, "echo", stream=True)
        await caller.ended()
        return caller.content

    assert run(story).endswith(b"data: [DONE]\n\n")
    assert not request_task.running_requests


@pytest.mark.slow
def test_the_head_of_a_stream_comes_with_its_first_record(customer: ApiCustomer) -> None:
    customer.simulate("fails-slow-1")

    async def story() -> list[dict[str, Any]]:
        caller = Caller(customer, "fails-slow-1", stream=True)
        await asyncio.sleep(0.3)
        assert caller.messages == []
        await caller.until_records(1)
        caller.disconnect()
        await caller.ended()
        return caller.messages[:2]

    start, first = run(story)
    assert start["type"] == "http.response.start"
    assert first["body"].startswith(b"data: {")


def test_a_disconnect_stops_the_backend_and_is_charged_what_was_generated(customer: ApiCustomer) -> None:
    customer.simulate("paced-1000x100")

    async def story() -> int:
        caller = Caller(customer, "paced-1000x100", stream=True)
        await caller.until_records(5)
        assert simulator().running == 1
        caller.disconnect()
        await caller.ended()
        assert simulator().running == 0
        return len(caller.content.strip().split(b"\n\n"))

    words = run(story)
    row = customer.reservation()
    assert (row.state, row.basis) == ("settled", "observed")
    assert 5 <= words < 20
    activity = customer.activity()
    assert (activity.status, activity.code) == (499, "client_closed_request")
    assert activity.completion_tokens in range(words, words + 2)
    assert activity.cost_nanousd == row.charged_nanousd


def test_a_client_that_waits_for_json_and_leaves_is_charged_too(customer: ApiCustomer) -> None:
    customer.simulate("fails-hang-midway")

    async def story() -> None:
        caller = Caller(customer, "fails-hang-midway")
        await until_generated(3)
        caller.disconnect()
        await caller.ended()
        assert caller.messages == []

    run(story)
    assert customer.reservation().basis == "observed"
    assert customer.activity().completion_tokens == 3


def test_a_disconnect_while_credit_is_held_leaves_no_hold(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    customer.simulate("echo")
    reserve = Ledger.reserve

    async def story() -> None:
        asked = asyncio.Event()

        async def slow_reserve(self: Ledger, request: Any) -> Any:
            asked.set()
            return await reserve(self, request)

        monkeypatch.setattr(Ledger, "reserve", slow_reserve)
        caller = Caller(customer, "echo", stream=True)
        await asked.wait()
        caller.disconnect()
        await caller.ended()

    run(story)
    close_ledger(5)  # once it has done all that it was asked
    assert not Reservation.objects.filter(state__in=["held", "unknown"]).exists()


def test_a_disconnect_while_it_is_settled_changes_nothing(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    customer.simulate("echo")
    settle = Ledger.settle

    async def story() -> None:
        caller: Caller | None = None

        async def settle_late(self: Ledger, *args: Any) -> Any:
            assert caller is not None
            caller.disconnect()
            await asyncio.sleep(0.05)
            return await settle(self, *args)

        monkeypatch.setattr(Ledger, "settle", settle_late)
        caller = Caller(customer, "echo", stream=True)
        await caller.ended()

    run(story)
    assert customer.reservation().basis == "usage"
    assert customer.activity().status == 200


@BOTH
def test_it_is_settled_before_the_last_byte(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    customer.simulate("echo")
    settle = Ledger.settle
    seen: list[bytes] = []

    async def story() -> bytes:
        caller = Caller(customer, "echo", stream=stream)

        async def watched(self: Ledger, *args: Any) -> Any:
            outcome = await settle(self, *args)
            seen.append(caller.content)
            return outcome

        monkeypatch.setattr(Ledger, "settle", watched)
        await caller.ended()
        return caller.content

    whole = run(story)
    (before,) = seen
    assert b"[DONE]" not in before
    assert whole.endswith(b"[DONE]\n\n" if stream else b"}")
    assert stream or before == b""


@pytest.mark.slow
def test_a_client_that_stops_reading_stops_the_backend_and_is_given_up(
    customer: ApiCustomer, settings: Any
) -> None:
    settings.GATEWAY_SLOW_READER_SECONDS = 1
    settings.GATEWAY_HEARTBEAT_SECONDS = 1
    customer.simulate("paced-100000x0", context_length=200_000, max_output_length=100_000)

    async def story() -> int:
        caller = Caller(customer, "paced-100000x0", stream=True, max_tokens=100_000)
        await caller.until_records(3)
        caller.is_reading.clear()
        written = len(caller.messages)
        await caller.ended()
        assert simulator().running == 0
        return len(caller.messages) - written

    assert run(story) == 0
    assert customer.reservation().basis == "observed"


@pytest.mark.slow
def test_a_silent_stream_is_kept_alive_with_comments(customer: ApiCustomer, settings: Any) -> None:
    settings.GATEWAY_PING_SECONDS = 1
    settings.GATEWAY_HEARTBEAT_SECONDS = 1
    customer.simulate("fails-hang-midway")

    async def story() -> Caller:
        caller = Caller(customer, "fails-hang-midway", stream=True)
        await caller.until(lambda caller: KEEP_ALIVE in caller.content)
        caller.disconnect()
        await caller.ended()
        return caller

    caller = run(story)
    assert caller.content.index(b"data: {") < caller.content.index(KEEP_ALIVE)
    assert len(caller.records) == 3


@pytest.mark.slow
def test_no_comment_comes_before_the_first_record(customer: ApiCustomer, settings: Any) -> None:
    settings.GATEWAY_PING_SECONDS = 1
    settings.GATEWAY_HEARTBEAT_SECONDS = 1
    settings.GATEWAY_DEADLINE_SECONDS = 3
    customer.simulate("fails-hang")

    async def story() -> int:
        caller = Caller(customer, "fails-hang", stream=True)
        await caller.ended()
        return caller.status

    assert run(story) == 504


@pytest.mark.slow
def test_heartbeats_tell_the_ledger_what_was_generated(customer: ApiCustomer, settings: Any) -> None:
    settings.GATEWAY_HEARTBEAT_SECONDS = 1
    customer.simulate("fails-hang-midway")
    beats: list[Any] = []
    beat = Ledger.heartbeat

    async def story(monkeypatch: pytest.MonkeyPatch) -> None:
        done = asyncio.Event()

        async def watched(self: Ledger, hold: Any, observed: Any = None) -> bool:
            alive = await beat(self, hold, observed)
            beats.append((observed, alive))
            done.set()
            return alive

        monkeypatch.setattr(Ledger, "heartbeat", watched)
        caller = Caller(customer, "fails-hang-midway", stream=True)
        await caller.until_records(3)
        await done.wait()
        caller.disconnect()
        await caller.ended()

    with pytest.MonkeyPatch.context() as monkeypatch:
        run(lambda: story(monkeypatch))
    ((observed, alive),) = beats
    assert alive
    assert observed.completion == 3
    assert customer.reservation().used_quantities == observed


@BOTH
def test_a_process_that_ends_says_so_and_settles(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("fails-hang-midway")

    async def story() -> Caller:
        caller = Caller(customer, "fails-hang-midway", stream=stream)
        if stream:
            await caller.until_records(3)
        else:
            await until_generated(3)
        await request_task.stop_all()
        await caller.ended()
        return caller

    caller = run(story)
    if stream:
        assert caller.records[-1]["error"]["code"] == "shutting_down"
    else:
        assert caller.status == 503
        assert (b"x-should-retry", b"false") in caller.messages[0]["headers"]
    assert customer.reservation().basis == "observed"


def test_a_server_that_cancels_the_connection_gets_it_settled(customer: ApiCustomer) -> None:
    customer.simulate("paced-1000x100")

    async def story() -> Caller:
        caller = Caller(customer, "paced-1000x100", stream=True)
        await caller.until_records(3)
        caller.task.cancel()
        await caller.ended()
        return caller

    assert run(story).records[-1]["error"]["code"] == "shutting_down"
    assert customer.reservation().basis == "observed"


def test_a_bug_in_a_stream_ends_it_with_a_record(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    customer.simulate("echo")
    count = UsageMeter.count

    def broken(self: Any, event: Any) -> None:
        count(self, event)
        if getattr(event, "text", "") == " my":
            raise RuntimeError("the secret plan")

    monkeypatch.setattr(UsageMeter, "count", broken)

    async def story() -> Caller:
        caller = Caller(customer, "echo", stream=True)
        await caller.ended()
        return caller

    caller = run(story)
    assert caller.records[-1]["error"]["code"] == "internal_error"
    assert b"secret" not in caller.content
    assert customer.reservation().basis == "observed"


def test_a_hold_whose_events_nobody_reads_is_given_back(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    customer.simulate("echo")

    def broken(*args: Any) -> Any:
        raise RuntimeError("no writer")

    monkeypatch.setattr(CHAT, "writer", broken)

    assert customer.ask("echo").status == 500
    assert customer.reservation().state == "released"


@pytest.mark.slow
def test_the_life_of_a_process(customer: ApiCustomer) -> None:
    customer.simulate("paced-1000x100")
    sent: list[str] = []

    async def story() -> Caller:
        messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        async def send(message: dict[str, str]) -> None:
            sent.append(message["type"])

        life = asyncio.create_task(Lifespan()({"type": "lifespan"}, messages.get, send))
        messages.put_nowait({"type": "lifespan.startup"})
        caller = Caller(customer, "paced-1000x100", stream=True)
        await caller.until_records(3)
        messages.put_nowait({"type": "lifespan.shutdown"})
        await life
        await caller.ended()
        return caller

    assert run(story).records[-1]["error"]["code"] == "shutting_down"
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert customer.activity().code == "shutting_down"
    assert HELLO not in str(vars(customer.activity()))
