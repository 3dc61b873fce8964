"""One request of the HTTP client to a server of the tests, and a resolver that answers what a test wants."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway_site.http_client.client import Client, Timeouts, UpstreamRequest
from inference.backends.base import Dispatch, nothing_to_mark

HASTY = Timeouts(connect=1, first_byte=2, between_bytes=2, total=5)
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"


def request_to(url: str, body: bytes = b"{}", **headers: str) -> UpstreamRequest:
    return UpstreamRequest(
        url=f"{url}/v1/x", body=body, headers=headers, credential="", backend="b", max_stream_bytes=10_000
    )


async def ask(client: Client, url: str, dispatch: Dispatch = nothing_to_mark, **options: Any) -> bytes:
    answer = await client.post(request_to(url, **options), dispatch)
    try:
        return await answer.whole()
    finally:
        answer.close()


class FakeResolver:
    """Answers every name with the same addresses after a moment, and counts the look-ups."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.look_ups = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.look_ups += 1
        await asyncio.sleep(0.02)
        return list(self.addresses)
