"""Clients that read streams from a server, each over a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from tests.harness.live_server import LiveServer
from tests.inference.customer import question, records

# Settings with which a lost request is noticed within seconds.
SHORT_LEASES = {"GATEWAY_LEASE_SECONDS": "2", "GATEWAY_HEARTBEAT_SECONDS": "1", "GATEWAY_SWEEP_SECONDS": "1"}


class Reader:
    """Streams under way, and what their clients have read in the end."""

    def __init__(self, running: LiveServer, key: str, model: str) -> None:
        self._url = f"{running.address}/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._model = model
        self._speaking = asyncio.Semaphore(0)

    async def start(self, count: int) -> list[asyncio.Task[bytes]]:
        """As soon as each of them has had its first bytes."""
        reading = [asyncio.create_task(self._read()) for _ in range(count)]
        for _ in reading:
            async with asyncio.timeout(30):
                await self._speaking.acquire()
        return reading

    async def _read(self) -> bytes:
        # A connection each, so that the workers share them.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(headers=self._headers, connector=connector) as session:
            fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
            async with session.post(self._url, json=question(self._model, **fields)) as answer:
                body = b""
                try:
                    async for piece in answer.content.iter_any():
                        if not body:
                            self._speaking.release()
                        body += piece
                except aiohttp.ClientError:
                    pass  # cut off: what was read so far is the answer
                return body


def is_complete(body: bytes) -> bool:
    return body.endswith(b"data: [DONE]\n\n") and "error" not in records(body)[-2]
