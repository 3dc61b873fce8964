"""HTTP/1.1 with a bound on everything that a client can send, keep open or leave unread."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from typing import Any

import httptools
from django.conf import settings
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway_site.api import envelope, request_id
from gateway_site.api.errors import ApiError, Unavailable
from gateway_site.api.protocol_errors import (
    HeadTimeout,
    HeadTooLarge,
    MalformedRequest,
    TargetTooLong,
    TooManyConnections,
)
from gateway_site.server.client_socket import bound_unsent_bytes
from gateway_site.server.connection_table import table_of

logger = logging.getLogger(__name__)

# Requests that may wait behind the one being answered. The connection closes after the last of them; a client
# that has sent more sends those again, as RFC 9112 (9.3.2) asks of it.
MAX_PIPELINED_REQUESTS = 16
# After a refusal the client may still be sending. It is read, and dropped, for this long: the answer would be
# lost if the connection was closed on bytes that nobody has read.
LINGER_SECONDS = 2
LINGER_BYTES = 1024 * 1024
VERSIONS = ("1.1", "1.0")


class HttpProtocol(HttpToolsProtocol):
    """
    One connection of a client, as uvicorn's protocol with bounds.

    uvicorn and its parser bound neither the head of a request nor trailers, pipelined requests or the time
    that any of them takes. Here bytes are counted before the parser sees them, and `ConnectionTable` ends
    what takes too long. Whatever is refused is answered in the error envelope; then the connection closes.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = table_of(server_state, self.loop)
        self._deadlines = self._table.deadlines
        self._limit_bytes: int = settings.GATEWAY_MAX_HEAD_BYTES
        self._limit_fields: int = settings.GATEWAY_MAX_HEAD_FIELDS
        self._limit_seconds: int = settings.GATEWAY_HEAD_TIMEOUT_SECONDS
        self.url = b""
        self._is_in_head = True
        self._head_bytes = 0
        # Of chunk sizes, chunk extensions and trailers since there was last a byte of the body itself.
        self._framing_bytes = 0
        self._active_cycle: RequestResponseCycle | None = None
        # Why nothing more is parsed; the answer says so once those before it are complete.
        self._refusal: ApiError | None = None
        self._is_input_ignored = False
        self._dropped_bytes = 0

    # --- the connection ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        bound_unsent_bytes(transport)
        super().connection_made(transport)
        if self._table.admit(self):
            self._deadlines[self] = self.loop.time() + self._limit_seconds
        elif self._table.has_room_for_refusal():
            self._refuse(TooManyConnections())
        else:
            self._is_input_ignored = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.forget(self)
        self.pipeline.clear()
        super().connection_lost(exc)
        # uvicorn tells the latest request, which is another one if requests were pipelined.
        if (active := self._active_cycle) is not None and not active.response_complete:
            active.disconnected = True
            active.message_event.set()

    def shutdown(self) -> None:
        self.pipeline.clear()
        if (active := self._active_cycle) is not None and not active.response_complete:
            active.keep_alive = False
        else:
            self.transport.close()

    def resume_writing(self) -> None:
        self._table.clear_stall(self)
        super().resume_writing()

    def is_writing_blocked(self) -> bool:
        return self.flow.write_paused

    def on_deadline(self) -> None:
        """End a wait: the client had its time for the next request, or to read why it was refused."""
        self._deadlines.pop(self, None)
        if self._has_active_request():
            return  # it is the application's turn, and the next request has time until the answer is complete
        if self._refusal is None and self._is_in_head and self._head_bytes:
            self._refuse(HeadTimeout(self._limit_seconds))
        else:
            self.transport.close()

    # --- bytes ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_input_ignored:
            self._drop(data)
            return
        if self._is_in_head:
            room_bytes = self._limit_bytes - self._head_bytes
            if len(data) > room_bytes:
                self._parse_up_to(room_bytes, data)
                return
            self._head_bytes += len(data)
        else:
            self._framing_bytes += len(data)
        self._parse(data)
        if self in self._deadlines and not self._is_input_ignored:
            self._extend_deadline(is_first=self._head_bytes == len(data))
        if self._framing_bytes > self._limit_bytes and not self._is_input_ignored:
            self._refuse(HeadTooLarge(f"Between two chunks are more than {self._limit_bytes} bytes."))

    def _extend_deadline(self, *, is_first: bool) -> None:
        """Renew the deadline of an incomplete request; `is_first` says that its first bytes just came."""
        if self._is_in_head:
            if is_first and self.cycle is not None:  # the time of a connection's first request runs already
                self._set_deadline(self._limit_seconds)
        elif self._has_active_request():
            self._deadlines[self] = math.inf  # the application waits for the body, and has a clock

    def _parse_up_to(self, room_bytes: int, data: bytes) -> None:
        self._head_bytes = self._limit_bytes
        self._parse(data[:room_bytes])
        if self._is_in_head and self._head_bytes and not self._is_input_ignored:
            is_target = len(self.url) > self._limit_bytes // 2
            message = f"The request line and headers are larger than {self._limit_bytes} bytes together."
            self._refuse(TargetTooLong(self._limit_bytes) if is_target else HeadTooLarge(message))
        self.data_received(data[room_bytes:])

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._table.forget(self)
                self._is_input_ignored = True
                self.handle_websocket_upgrade()
            else:
                self._parse_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if not self._is_input_ignored:
                self._refuse(_refusal_for(error.__context__))

    def _parse_without_upgrade(self, remaining: bytes) -> None:
        # The parser takes an upgrade for granted and leaves the body alone. To go on in HTTP/1.1, as RFC 9110
        # (7.8) allows, the head is parsed again without the offer; Java's client makes it by default.
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = (option.strip().lower() for option in value.split(b","))
                lines += [b"connection: %s" % option for option in options if option not in (b"", b"upgrade")]
            elif name != b"upgrade":
                lines.append(b"%s: %s" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._is_in_head = True
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + remaining)

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > LINGER_BYTES and not self._has_active_request():
            self.transport.abort()

    # --- what the parser finds -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self.cycle.keep_alive = False
            self._is_input_ignored = True
            raise MalformedRequest  # stops the parser
        if not self._head_bytes:
            self._head_bytes = 1  # it came along with the end of the request before it
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # a trailer: the application has the headers already
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.headers) > self._limit_fields:
            raise HeadTooLarge(f"The request has more than {self._limit_fields} header fields.")
        if self.parser.get_http_version() not in VERSIONS:
            raise MalformedRequest("The request must be HTTP/1.1 or HTTP/1.0.")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise MalformedRequest("The gateway is no proxy: CONNECT is not served.")
            if self._has_active_request():
                raise MalformedRequest("An upgrade must wait until the answers before it are complete.")
        self._is_in_head = False
        self._head_bytes = self._framing_bytes = 0
        if not self.parser.should_upgrade() or self._should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_in_head = True
        self._framing_bytes = 0
        if self.cycle.response_complete:
            self._set_deadline(self.timeout_keep_alive)
            return
        self._deadlines.pop(self, None)
        self.cycle.more_body = False
        self.cycle.message_event.set()

    # --- answers -------------------------------------------------------------------------------------

    def _has_active_request(self) -> bool:
        return self._active_cycle is not None and not self._active_cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on as uvicorn does, but the keep-alive timeout is the connection table's."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._refusal is not None:
            self._answer_refusal(self._refusal)
        elif self._is_in_head and not self._head_bytes:
            self._set_deadline(self.timeout_keep_alive)
        else:
            # The rest of a body that the application did not care for, or a head that came too early.
            self._set_deadline(self._limit_seconds)

    def _set_deadline(self, seconds: float) -> None:
        self._deadlines.pop(self, None)  # to the end of the line
        self._deadlines[self] = self.loop.time() + seconds

    def _refuse(self, error: ApiError) -> None:
        """Parse nothing more. The error is the last answer on this connection."""
        self._is_input_ignored = True
        self._refusal = error
        cycle = self.cycle
        if not self._has_active_request():
            if self._is_in_head:
                self._answer_refusal(error)
            else:
                self.transport.close()  # the rest of a body whose request has been answered
        elif not cycle.more_body:
            pass  # the requests before the one that is refused are answered first
        elif cycle is not self._active_cycle:
            self.pipeline.popleft()  # its body is refused, and it has not begun
        else:
            self._refuse_body(cycle, error)

    def _refuse_body(self, cycle: RequestResponseCycle, error: ApiError) -> None:
        # To the application, its client has hung up.
        self._active_cycle = None
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle.response_started:
            self.transport.close()
        else:
            self._answer_refusal(error)

    def _answer_refusal(self, error: ApiError) -> None:
        path = (self.scope or {}).get("path", "")
        self.transport.write(contextvars.copy_context().run(render_response, error, path, self.server_state))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._set_deadline(LINGER_SECONDS)


def _refusal_for(cause: BaseException | None) -> ApiError:
    """The error that a client gets for what a callback of the parser raised; without one it was bad HTTP."""
    if isinstance(cause, ApiError):
        return cause
    if isinstance(cause, MemoryError):
        logger.error("a request was refused for want of memory")
        return Unavailable("The server is short of memory. Try again.")
    return MalformedRequest()


def render_response(error: ApiError, path: str, server_state: ServerState) -> bytes:
    """Render a whole response with a request id of its own. To be run in a context of its own, too."""
    identifier = request_id.begin()
    status, headers, body = envelope.render(error, path=path)
    pairs = [
        *server_state.default_headers,
        *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        *request_id.headers_of(identifier, path),
        (b"connection", b"close"),
    ]
    return b"".join([STATUS_LINE[status], *(b"%s: %s\r\n" % pair for pair in pairs), b"\r\n", body])
