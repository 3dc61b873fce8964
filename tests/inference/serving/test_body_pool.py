"""Large bodies of several customers come at once, their clients leave, and their deadlines pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from billing.models import Reservation
from gateway_site.api.bodies import checkpoints
from gateway_site.api.bodies.checkpoints import Stopped, checkpoint
from gateway_site.api.errors import InvalidRequest, RateLimited, Unavailable
from inference import tokenizer
from inference.serving import body_pool
from inference.serving.body_pool import SMALL_BODY_BYTES, SMALL_BODY_NODES, BodyWork, FairPool
from inference.serving.load_balancing.load_balancer import load_balancer
from tests.harness.error_checks import assert_error
from tests.inference.backends.upstreams.faulty.server import upstream_in_thread
from tests.inference.customer import ApiCustomer
from tests.inference.serving.paced_client import Caller, run

LARGE = "word " * 40_000


def large(organization: str, size_bytes: int = 1) -> BodyWork:
    return BodyWork(organization, size_bytes, is_large=True)


class Gate:
    """Work that is begun and stays until it is let go, or told to stop."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.is_open = threading.Event()
        self.stopped = threading.Event()

    def work(self, *args: Any) -> str:
        self.begun.set()
        while not self.is_open.wait(0.005):
            try:
                checkpoint()
            except Stopped:
                self.stopped.set()
                raise
        return "done"


def in_loop(story: Callable[[], Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(20):
            return await story()

    return asyncio.run(within())


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


def test_what_is_small_is_done_at_once() -> None:
    thread = threading.get_ident()
    small, many, long = (
        b'{"a":1}',
        b"[" + b"1," * SMALL_BODY_NODES + b"1]",
        b'"' + b"x" * SMALL_BODY_BYTES + b'"',
    )

    for body, is_large in ((small, False), (many, True), (long, True)):
        work = BodyWork.on(body, "acme")
        assert work.is_large is is_large
        assert (in_loop(lambda work=work: work.run(threading.get_ident)) != thread) is is_large


def test_errors_come_back_as_they_are() -> None:
    def refuse() -> None:
        raise InvalidRequest("no", param="x")

    with pytest.raises(InvalidRequest, match="no"):
        in_loop(lambda: large("acme").run(refuse))


def test_one_organization_has_one_thread_and_others_do_not_wait_for_it() -> None:
    first = Gate()
    order: list[Any] = []

    async def story() -> None:
        flood: list[asyncio.Task[Any]] = [asyncio.create_task(large("acme").run(first.work))]
        flood += [asyncio.create_task(large("acme").run(order.append, "acme")) for _ in range(50)]
        await happens(first.begun)
        # A thread is free, and yet none of the fifty has it.
        await asyncio.gather(*(large(name).run(order.append, name) for name in ("rival", "third", "rival")))
        assert sorted(order) == ["rival", "rival", "third"]
        first.is_open.set()
        await asyncio.gather(*flood)

    in_loop(story)
    assert order[3:] == ["acme"] * 50


def test_organizations_take_turns(settings: Any) -> None:
    settings.GATEWAY_BODY_THREADS = 1
    first = Gate()
    order: list[Any] = []

    async def story() -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(large("first").run(first.work))]
        await happens(first.begun)
        tasks += [asyncio.create_task(large("acme").run(order.append, "acme")) for _ in range(20)]
        tasks += [asyncio.create_task(large("rival").run(order.append, "rival")) for _ in range(2)]
        await asyncio.sleep(0)
        first.is_open.set()
        await asyncio.gather(*tasks)

    in_loop(story)
    assert order[:4] == ["acme", "rival", "acme", "rival"]


def test_what_waits_is_bounded_for_one_and_for_all(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.GATEWAY_BODY_QUEUE_BYTES = 2_000
    settings.GATEWAY_BODY_THREADS = 1
    first = Gate()

    async def story() -> None:
        tasks = [asyncio.create_task(large("acme", 600).run(first.work))]
        await happens(first.begun)
        with pytest.raises(RateLimited) as refused:
            await large("acme", 600).run(str)
        assert refused.value.status == 429
        assert refused.value.retry_after_seconds == 1
        tasks += [asyncio.create_task(large(name, 600).run(str)) for name in ("second", "third")]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as busy:
            await large("fourth", 600).run(str)
        assert busy.value.status == 503
        assert busy.value.retry_after_seconds == 1
        first.is_open.set()
        await asyncio.gather(*tasks)
        assert await large("fourth", 600).run(str) == ""
        assert not body_pool._pool_of_loop()._shares

    in_loop(story)


def test_who_leaves_stops_the_work_and_whoever_waits_is_next() -> None:
    first = Gate()

    async def story() -> None:
        running = asyncio.create_task(large("acme").run(first.work))
        await happens(first.begun)
        waiting = [asyncio.create_task(large("acme").run(str)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        running.cancel()
        waiting[1].cancel()
        await happens(first.stopped)
        assert await waiting[2] == ""
        await asyncio.gather(running, *waiting, return_exceptions=True)
        pool = body_pool._pool_of_loop()
        async with asyncio.timeout(5):
            while pool._shares:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (pool._waiting, pool._size_bytes, pool._idle) == (0, 0, 2)

    in_loop(story)


def test_many_small_texts_do_not_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(checkpoints, "BUSY_SECONDS", 0)
    monkeypatch.setattr(checkpoints.time, "sleep", pauses.append)
    with checkpoints.stopping(threading.Event()):
        assert tokenizer.count_pieces(len, ["x"] * 20_000) == 20_000

    assert 10 < len(pauses) < 200


# --- Requests ---------------------------------------------------------------------------------------


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Counting that takes until it is stopped."""
    asyncio.run(tokenizer.counter_ready("o200k_base"))  # which takes long the first time
    gate = Gate()
    monkeypatch.setattr(tokenizer, "_count_prompt", gate.work)
    return gate


@pytest.mark.slow
def test_a_deadline_before_any_backend_was_asked_blames_none(
    customer: ApiCustomer, settings: Any, stuck: Gate
) -> None:
    settings.GATEWAY_DEADLINE_SECONDS = 2
    with upstream_in_thread() as upstream:
        customer.serve("ok", upstream.url)
        answer = customer.ask("ok", LARGE)

        assert_error(answer, 504, "deadline_exceeded")
        assert "No backend was asked" in answer.json["error"]["message"]
        assert "x-should-retry" not in answer.headers
        assert stuck.stopped.wait(5)
        assert upstream.exchanges == []
    assert not Reservation.objects.exists()
    assert not load_balancer._circuits


def test_a_client_that_disconnects_stops_the_work_on_its_body(customer: ApiCustomer, stuck: Gate) -> None:
    customer.simulate("echo")

    async def story() -> None:
        caller = Caller(customer, "echo", content=LARGE)
        await happens(stuck.begun)
        caller.disconnect()
        await caller.ended()

    run(story)
    assert stuck.stopped.wait(5)
    assert not Reservation.objects.exists()


def test_a_large_body_reaches_the_backend_as_it_is(customer: ApiCustomer) -> None:
    with upstream_in_thread() as upstream:
        customer.serve("ok", upstream.url)

        assert customer.ask("ok", LARGE).status == 200
        assert upstream.last.body["messages"] == [{"role": "user", "content": LARGE}]


def test_a_thread_that_cannot_be_started_costs_its_own_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = ThreadPoolExecutor(1)

    async def ask() -> str:
        pool = FairPool(threads, 1)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot_start)
            with pytest.raises(Unavailable):
                await pool.run("acme", 1, lambda: "first")
        async with asyncio.timeout(10):
            return await pool.run("acme", 1, lambda: "second")

    assert asyncio.run(ask()) == "second"
    threads.shutdown()


def cannot_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
