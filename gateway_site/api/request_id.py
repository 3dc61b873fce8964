"""A fresh id for every request: in both headers, in the envelope, in every log line."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from typing import Any

# In a scope: how to send what follows the head of a response. The layers in between read heads alone, and a
# stream would go through them for every token.
SEND_BODY = "gateway.send_body"

_current: ContextVar[str] = ContextVar("request_id", default="")


def current() -> str:
    """The id of the request being served, or "" outside of one."""
    return _current.get()


def begin() -> str:
    """Make a fresh id, from here on the current one."""
    identifier = str(uuid.uuid4())
    _current.set(identifier)
    return identifier


class RequestIdMiddleware:
    """
    The outermost ASGI layer: what it adds is on every response, whoever made it.

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

        scope[SEND_BODY] = send
        await self.app(scope, receive, send_with_headers)


def headers_of(identifier: str, path: str) -> list[tuple[bytes, bytes]]:
    """The headers that a response to the request for `path` carries in addition to its own."""
    value = identifier.encode()
    # `request-id` is where the Messages SDK looks.
    headers = [(b"x-request-id", value), (b"request-id", value)]
    if not path.startswith(("/static/", "/admin/")):
        # Answers hold keys and costs. The console sets its own, per page.
        headers.append((b"cache-control", b"no-store"))
    return headers
