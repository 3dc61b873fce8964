"""Sends one response, whole or streamed, with backpressure and a clock that sees a slow reader."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway_site.api.request_id import SEND_BODY
from gateway_site.api.request_limits import begin_stream
from inference.serving.cost_headers import COST_HEADER

KEEP_ALIVE = b": ping\n\n"
JSON_TYPE = (b"content-type", b"application/json")
RAW_COST_HEADER = COST_HEADER.lower().encode()
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx would otherwise keep tokens until it has a bufferful.
    (b"x-accel-buffering", b"no"),
]


class ResponseSender:
    """
    Writes one answer to its client.

    Backpressure: `send` waits while the client's buffer is full, so no more is generated than it takes.

    The head of a stream goes out with the first record and not before: until then a failure is a status.
    """

    def __init__(self, scope: Any, send: Any, timing: Callable[[], bytes] | None = None) -> None:
        self._scope = scope
        # Makes the Server-Timing header, where that is wanted.
        self._timing = timing
        self._send = send
        self._send_body = scope.get(SEND_BODY, send)
        self._has_begun = False
        # From the last byte on: what the client does then does not matter any more.
        self.is_complete = False
        # The client is gone: an answer that is awaited all the same goes nowhere.
        self.is_abandoned = False
        self._sending_since: float | None = None
        self._last_sent = 0.0

    async def send_json(self, body: bytes, cost_usd: str | None = None) -> None:
        if self.is_abandoned:
            return
        headers = self._headers([JSON_TYPE, (b"content-length", b"%d" % len(body))])
        if cost_usd is not None:
            headers.append((RAW_COST_HEADER, cost_usd.encode()))
        self._sending_since = time.monotonic()
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # Before it is sent: a server may report a disconnect while it takes the last byte.
        self.is_complete = True
        await self._send_body({"type": "http.response.body", "body": body})
        self._sending_since = None

    async def send_stream(self, records: AsyncIterator[bytes], error_record: Any) -> None:
        send, now = self._send_body, time.monotonic
        async for record in records:
            if not self._has_begun:
                begin_stream(self._scope, error_record)
                self._has_begun = True
                headers = self._headers(STREAM_HEADERS)
                self._sending_since = now()
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            # As `_send_record`, which would be another coroutine for every token.
            self._last_sent = self._sending_since = now()
            await send({"type": "http.response.body", "body": record, "more_body": True})
            self._sending_since = None
        self.is_complete = True
        await self._send_record({"type": "http.response.body", "body": b""})
        self._has_begun = False

    async def send_keep_alive(self) -> None:
        """Send an SSE comment, which every client skips; only between records."""
        if self._has_begun and self._sending_since is None:
            await self._send_record({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    def blocked_seconds(self, now: float) -> float:
        """How long the client has read nothing of what was sent to it."""
        return 0.0 if self._sending_since is None else now - self._sending_since

    def silent_seconds(self, now: float) -> float:
        """How long a stream has sent nothing; 0 for what is no stream, or has not begun."""
        return now - self._last_sent if self._has_begun else 0.0

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return headers if self._timing is None else [*headers, (b"server-timing", self._timing())]

    async def _send_record(self, message: dict[str, Any]) -> None:
        self._last_sent = self._sending_since = time.monotonic()
        await self._send_body(message)
        self._sending_since = None
