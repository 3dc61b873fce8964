"""SIGTERM: what is under way ends as it should, or says that it could not; and nothing stays held."""

from __future__ import annotations

import asyncio
import signal

import aiohttp
import pytest

from billing.models import Reservation
from tests.harness.live_server import LiveServer, live_server
from tests.inference.customer import ApiCustomer, question, records

STREAMS = 20


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
