"""The ASGI layer that refuses requests before routing, and the last resort when nothing else answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from gateway_site.api import envelope
from gateway_site.api.allowed_hosts import is_host_allowed
from gateway_site.api.bodies.incoming_body import IncomingBody, incoming_bodies
from gateway_site.api.bodies.size_limits import body_limit_bytes
from gateway_site.api.errors import ApiError
from gateway_site.api.exception_handler import to_api_error
from gateway_site.api.protocol_errors import DisallowedHost

logger = logging.getLogger(__name__)

LAST_RECORD_SECONDS = 2
# In a scope: the response to the request, as far as it has got.
RESPONSE = "gateway.response"

ErrorRecord = Callable[[ApiError], bytes]


def begin_stream(scope: Any, error_record: ErrorRecord) -> None:
    """Have the response end with this record if an exception escapes the application."""
    response: TrackedResponse = scope[RESPONSE]
    response.error_record = error_record


class RequestLimitsMiddleware:
    """ASGI layer under the request id: the host, the body's size and time, an envelope for what escapes."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = TrackedResponse(send)
        # The root path is what daphne takes from a client's header, and Django would route by what is left.
        scope = {**scope, "root_path": "", RESPONSE: response}
        body = IncomingBody(receive, body_limit_bytes(scope["path"]))
        body.refuse_announced(scope)
        if not is_host_allowed(scope):
            body.refusal = DisallowedHost()
        try:
            if body.refusal is None:
                await self.app(scope, body.receive, response.send)
        except Exception as exc:
            # One of the project's two broad handlers: the client gets the envelope, the log the traceback.
            if response.error_record is not None:
                await self._end_stream(send, response.error_record(to_api_error(exc)))
            elif response.has_begun:
                logger.error("failed after the answer had begun", exc_info=exc)
                raise
            else:
                await self._refuse(scope, body, send, to_api_error(exc))
        else:
            if body.refusal is not None and not response.has_begun:
                await self._refuse(scope, body, send, body.refusal)
        finally:
            incoming_bodies.forget(body)

    async def _end_stream(self, send: Any, last_record: bytes) -> None:
        # A client that reads nothing does not get to read this either.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RECORD_SECONDS):
                await send({"type": "http.response.body", "body": last_record})

    async def _refuse(self, scope: Any, body: IncomingBody, send: Any, error: ApiError) -> None:
        status, headers, content = envelope.render(error, path=scope["path"])
        if not body.is_complete:
            headers["Connection"] = "close"
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await body.discard_remaining()
        await send({"type": "http.response.body", "body": b""})


class TrackedResponse:
    """Remembers whether the response has begun: after that, its status can no longer be chosen."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.has_begun = False
        # How a stream that is under way says that it failed, where it has a way to.
        self.error_record: ErrorRecord | None = None

    async def send(self, message: Any) -> None:
        self.has_begun = True
        await self._send(message)
