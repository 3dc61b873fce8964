"""A worker whose address space is used up while large requests come in."""

from __future__ import annotations

import asyncio
import io
import json
import resource
from pathlib import Path

import aiohttp

from billing.models import Reservation
from tests.e2e.stream_reader import SHORT_LEASES, Reader, is_complete
from tests.e2e.waiting import until
from tests.inference.chat_cast import Gateway, question
from tests.live import LiveServer, live_server

BODY_BYTES = 8 * 1024 * 1024
LARGE_REQUESTS = 6
# Enough for streams and a thread or two, too little for all the large bodies.
ROOM_BYTES = 24 * 1024 * 1024


def leave_room(process_id: int, room_bytes: int) -> None:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + room_bytes
    resource.prlimit(process_id, resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


async def ask_for_much(running: LiveServer, key: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps(question("echo", "word " * (BODY_BYTES // 5))).encode()
    async with aiohttp.ClientSession(headers=headers) as session:
        try:
            async with session.post(
                f"{running.address}/v1/chat/completions", data=io.BytesIO(body)
            ) as answer:
                return answer.status, await answer.read()
        except aiohttp.ClientError:
            return 0, b""  # the worker itself ended


def test_what_needs_more_memory_than_there_is_fails_alone(
    gateway: Gateway, process_environment: dict[str, str]
) -> None:
    gateway.simulate("echo")
    gateway.simulate("paced-100x20")

    async def exhaust(running: LiveServer, worker: int) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        reading = await Reader(running, gateway.value, "paced-100x20").start(2)
        leave_room(worker, ROOM_BYTES)
        large = await asyncio.gather(*(ask_for_much(running, gateway.value) for _ in range(LARGE_REQUESTS)))
        resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return await asyncio.gather(*reading), large

    with live_server(process_environment, settings=SHORT_LEASES) as running:
        streams, large = asyncio.run(exhaust(running, running.process.pid))

        # Refused, by us or by the HTTP server before us, or cut off; but not served as if nothing were.
        assert any(status != 200 for status, _ in large), large
        assert all(map(is_complete, streams))
        again = asyncio.run(read_one(running, gateway.value))
        assert all(map(is_complete, again))
        until(lambda: not Reservation.objects.filter(state="held").exists(), 30)


async def read_one(running: LiveServer, key: str) -> list[bytes]:
    return await asyncio.gather(*await Reader(running, key, "paced-100x20").start(1))
