"""SIGTERM: what is under way ends as it should, or says that it could not; and nothing stays held."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest

from billing.models import EndedBy, Reservation
from inference.models import Activity
from tests.e2e.waiting import until
from tests.harness.live_server import LiveServer, live_server
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer, question, records

STREAMS = 20
JSON_REQUESTS = 5


async def stream_while_it_is_told_to_stop(running: LiveServer, key: str, model: str) -> list[bytes]:
    headers = {"Authorization": f"Bearer {key}"}
    speaking = asyncio.Semaphore(0)
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def read() -> bytes:
            url = f"{running.address}/v1/chat/completions"
            async with session.post(url, json=question(model, stream=True)) as answer:
                first = await answer.content.readany()
                speaking.release()
                return first + await answer.read()

        reading = [asyncio.create_task(read()) for _ in range(STREAMS)]
        for _ in reading:
            await speaking.acquire()
        running.process.send_signal(signal.SIGTERM)
        bodies = await asyncio.gather(*reading)
        with pytest.raises(aiohttp.ClientConnectionError):
            async with session.get(f"{running.address}/healthz"):
                pass
        return bodies


def test_streams_end_before_the_process_does(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-30x20")
    with live_server(process_environment) as running:
        bodies = asyncio.run(stream_while_it_is_told_to_stop(running, customer.value, "paced-30x20"))

        assert running.process.wait(10) == 0
    for body in bodies:
        assert records(body)[-1] == "[DONE]"
        assert records(body)[-2]["choices"][0]["finish_reason"] == "stop"
    assert Reservation.objects.filter(state="settled", basis="usage").count() == STREAMS


def test_streams_that_would_take_too_long_are_told_and_settled(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-600x20")
    with live_server(process_environment, settings={"GATEWAY_DRAIN_SECONDS": "1"}) as running:
        bodies = asyncio.run(stream_while_it_is_told_to_stop(running, customer.value, "paced-600x20"))

        assert running.process.wait(10) == 0
    for body in bodies:
        assert records(body)[-1]["error"]["code"] == "shutting_down"
    assert Reservation.objects.filter(state="settled", basis="observed").count() == STREAMS


@contextmanager
def serving_late(
    environment: dict[str, str], script: str, **settings: str
) -> Iterator[tuple[LiveServer, FaultyUpstream]]:
    """A server whose model `late` is answered as the script says, and not at once."""
    with upstream_in_thread() as upstream, live_server(environment, settings=settings) as running:
        backend = make_backend("faulty", "openai", base_url=f"{upstream.url}/v1")
        deploy(make_model("late", **COLUMNS), backend, script)
        yield running, upstream


async def ask_for_json_and_leave(running: LiveServer, upstream: FaultyUpstream, key: str) -> None:
    """Leave as soon as the backend has every request, and before it answers any."""
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{running.address}/v1/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as session:

        async def ask() -> None:
            async with session.post(url, json=question("late")):
                pass

        asking = [asyncio.create_task(ask()) for _ in range(JSON_REQUESTS)]
        await asyncio.to_thread(until, lambda: len(upstream.exchanges) == JSON_REQUESTS)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def test_json_that_is_awaited_without_its_client_ends_before_the_process_does(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    with serving_late(process_environment, "ok?wait=2") as (running, upstream):
        asyncio.run(ask_for_json_and_leave(running, upstream, customer.value))
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(20) == 0
    rows = Reservation.objects.filter(state="settled", basis="usage", ended_by=EndedBy.CLIENT)
    assert rows.count() == JSON_REQUESTS
    assert Activity.objects.filter(status=499, cost_nanousd__gt=0).count() == JSON_REQUESTS


def test_json_that_would_be_awaited_for_too_long_is_unknown(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    one_second = {"GATEWAY_DRAIN_SECONDS": "1"}
    with serving_late(process_environment, "hang_before_headers", **one_second) as (running, upstream):
        asyncio.run(ask_for_json_and_leave(running, upstream, customer.value))
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(20) == 0
    rows = Reservation.objects.filter(state="unknown", ended_by=EndedBy.SHUTDOWN)
    assert rows.count() == JSON_REQUESTS
    assert Activity.objects.filter(status=499, cost_nanousd=None).count() == JSON_REQUESTS
