"""More large bodies come to a worker at once than it has memory for."""

from __future__ import annotations

import asyncio
import io
import json
import resource
from pathlib import Path

import aiohttp

from billing.models import Reservation
from tests.e2e.streams.reader import SHORT_LEASES, Reader, is_complete
from tests.e2e.waiting import until
from tests.harness.live_server import LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

BODY_BYTES = 8 * 1024 * 1024
LARGE_REQUESTS = 48
# Enough for what may arrive and wait at a time, with the threads that work on it; too little for all.
ROOM_BYTES = 256 * 1024 * 1024
BOUND = {"GATEWAY_BODY_QUEUE_BYTES": str(32 * 1024 * 1024)}
STREAMS = 2
# A request that is lost is not waited for until the test run ends.
PATIENCE_SECONDS = 60
NO_ANSWER = -1


def leave_room(process_id: int, room_bytes: int) -> None:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + room_bytes
    resource.prlimit(process_id, resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


async def ask_for_much(running: LiveServer, key: str, body: bytes) -> int:
    """The status of the answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    patience = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=patience) as session:
        try:
            async with session.post(
                f"{running.address}/v1/chat/completions", data=io.BytesIO(body)
            ) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return NO_ANSWER


def test_large_bodies_are_refused_before_memory_runs_short(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("echo")
    customer.simulate("paced-100x20")
    body = json.dumps(question("echo", "word " * (BODY_BYTES // 5))).encode()

    async def exhaust(running: LiveServer, worker: int) -> tuple[list[bytes], list[int]]:
        reading = await Reader(running, customer.value, "paced-100x20").start(STREAMS)
        leave_room(worker, ROOM_BYTES)
        asking = (ask_for_much(running, customer.value, body) for _ in range(LARGE_REQUESTS))
        large = await asyncio.gather(*asking)
        return await asyncio.gather(*reading), large

    with live_server(process_environment, settings={**SHORT_LEASES, **BOUND}) as running:
        streams, large = asyncio.run(exhaust(running, running.process.pid))

        assert set(large) <= {400, 429, 503}, large
        assert {429, 503} & set(large)
        assert all(map(is_complete, streams))
        again = asyncio.run(read_one(running, customer.value))
        assert all(map(is_complete, again))
        until(lambda: not Reservation.objects.filter(state="held").exists(), 30)


async def read_one(running: LiveServer, key: str) -> list[bytes]:
    return await asyncio.gather(*await Reader(running, key, "paced-100x20").start(1))
