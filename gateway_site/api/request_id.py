"""A fresh id for every request: in both headers, in the envelope, in every log line."""

from __future__ import annotations

import os
import uuid
from collections import deque
from contextvars import ContextVar
from typing import Any

# In a scope: how to send what follows the head of an answer. The layers in between look at heads alone, and a
# stream would go through them for every token.
REST = "gateway.send_rest"

_current: ContextVar[str] = ContextVar("request_id", default="")

# Ids made of one reading of the system's random source: one for each request costs four times as much.
IDS_AT_ONCE = 256
_fresh: deque[uuid.UUID] = deque()


def current() -> str:
    """The id of the request being served, or "" outside of one."""
    return _current.get()


def new() -> uuid.UUID:
    """A random id. As good as `uuid4`, whose bytes these are."""
    try:
        return _fresh.popleft()
    except IndexError:
        block = os.urandom(16 * IDS_AT_ONCE)
        _fresh.extend(
            uuid.UUID(bytes=block[start : start + 16], version=4) for start in range(0, len(block), 16)
        )
        return _fresh.popleft()


def begin() -> str:
    """A fresh id, and from here on the current one."""
    identifier = str(new())
    _current.set(identifier)
    return identifier


def _forget() -> None:
    _fresh.clear()


# Two processes that are one process's children must not give the same ids.
os.register_at_fork(after_in_child=_forget)


class RequestIdMiddleware:
    """
    Outermost ASGI layer: what it adds is on every answer, whoever made it.

    The client's own X-Request-ID is never used: it would let a caller forge lines in the activity log.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        identifier = begin()
        path = scope["path"]

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *headers_of(identifier, path)]}
            await send(message)

        scope[REST] = send
        await self.app(scope, receive, send_with_headers)


def headers_of(identifier: str, path: str) -> list[tuple[bytes, bytes]]:
    """What an answer to the request for `path` carries beside its own headers."""
    value = identifier.encode()
    # `request-id` is where the Messages SDK looks.
    headers = [(b"x-request-id", value), (b"request-id", value)]
    if not path.startswith(("/static/", "/admin/")):
        # Answers hold keys and costs. The console sets its own, per page.
        headers.append((b"cache-control", b"no-store"))
    return headers
