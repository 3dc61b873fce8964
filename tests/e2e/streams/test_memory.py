"""
Many streams at once, and clients that read nothing, cost one process no more memory than they must.

The short form. The long one, with a thousand streams of two minutes:
CHAT_STREAMS=1000 CHAT_WORDS=2400 python -m pytest tests/e2e/streams/test_memory.py
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import aiohttp
import pytest

from billing.models import Reservation
from tests.e2e.process_memory import megabytes
from tests.e2e.streams.raw_request import request_bytes
from tests.e2e.waiting import until
from tests.harness.live_server import UNLIMITED, LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

STREAMS = int(os.environ.get("CHAT_STREAMS", "300"))
WORDS = int(os.environ.get("CHAT_WORDS", "80"))
MUTE = 30

pytestmark = [
    pytest.mark.one_database,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc"),
]


async def stream_at_once(running: LiveServer, key: str, model: str, count: int) -> list[float]:
    """Memory after each tenth of all that is generated, while all of it goes on at once."""
    headers = {"Authorization": f"Bearer {key}"}
    seen: list[float] = []
    generated = 0
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def read() -> bool:
            nonlocal generated
            url = f"{running.address}/v1/chat/completions"
            last = b""
            async with session.post(url, json=question(model, stream=True, max_tokens=9000)) as answer:
                async for line in answer.content:
                    if line.startswith(b"data"):
                        last, generated = line, generated + 1
                        if generated % (count * WORDS // 10) == 0:
                            seen.append(megabytes(running))
            return last == b"data: [DONE]\n"

        assert all(await asyncio.gather(*(read() for _ in range(count))))
    return seen


def test_memory_holds_steady(customer: ApiCustomer, process_environment: dict[str, str]) -> None:
    steady = f"paced-{WORDS}x20"
    customer.simulate(steady)
    # Some 20 MB for each client, as fast as it goes, if nobody minded.
    customer.simulate("paced-100000x0", context_length=200_000, max_output_length=100_000)
    settings = {**UNLIMITED, "GATEWAY_SLOW_READER_SECONDS": "2", "GATEWAY_HEARTBEAT_SECONDS": "1"}
    with live_server(process_environment, settings=settings) as running:
        seen = asyncio.run(stream_at_once(running, customer.value, steady, STREAMS))
        peak = given_up(running, request_bytes(customer, "paced-100000x0", max_tokens=100_000))

    assert len(seen) >= 9
    # All streams are open by then; what follows is words, and words must not stay.
    assert seen[-1] - seen[3] < 10, seen
    assert Reservation.objects.filter(state="settled", basis="usage").count() == STREAMS
    assert peak - seen[-1] < 30, (seen, peak)


def given_up(running: LiveServer, request: bytes) -> float:
    """The most memory that was used while clients read nothing, until the server had enough of them."""
    clients = [_mute(running.port, request) for _ in range(MUTE)]
    peak = 0.0

    def all_given_up() -> bool:
        nonlocal peak
        peak = max(peak, megabytes(running))
        return Reservation.objects.filter(state="settled", basis="observed").count() == MUTE

    until(all_given_up, 60)
    for client in clients:
        client.close()
    return peak


def _mute(port: int, request: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(request)
    return client
