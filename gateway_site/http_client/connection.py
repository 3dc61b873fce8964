"""
One keep-alive connection to an upstream server: HTTP/1.1 over a transport, one exchange at a time.

httptools reads the answer straight out of what the socket gave. There is one future for each wait and one
timer for the life of the connection: a task, a lock or a timer for each read would cost more than the
reading. Reading pauses while what was read is not taken (backpressure). Nothing is ever sent twice, and a
byte that nobody asked for ends the connection.

Measured on uvloop with 32 at once, least of several rounds: 6 times cheaper than aiohttp for a request (20 us
of CPU, not 125), and 10 us for each chunk of a stream where it takes 16; 7 of them are the loop's own.

Every fault is an OSError: TimeoutError, ResponseCut or ResponseMalformed. None of them says what was sent.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

# Of a head, of trailers, or of whatever else is not body, in one piece.
MAX_HEAD_BYTES = 64 * 1024
READ_BUFFER_BYTES = 64 * 1024


class ResponseCut(ConnectionError):
    """The other side left before the end of its answer."""


class ResponseMalformed(ConnectionError):
    """The other side sent no HTTP, or a kind of it that was not asked for."""


class Origin(NamedTuple):
    is_secure: bool
    host: str
    port: int


class ExchangeTimeouts(NamedTuple):
    """The seconds of silence allowed in an exchange, and its deadline on the clock of the event loop."""

    first_byte: float
    between_bytes: float
    ends_at: float


class UpstreamConnection(asyncio.Protocol):
    """One HTTP/1.1 exchange at a time: `send`, `head`, `read` to the end; then `mark_idle` or `abort`."""

    __slots__ = (
        "_can_stay",
        "_deadline",
        "_failure",
        "_fields",
        "_has_head",
        "_is_busy",
        "_is_framed",
        "_is_lost",
        "_is_paused",
        "_is_sending",
        "_keep_alive",
        "_loop",
        "_parser",
        "_parts",
        "_reading",
        "_timeouts",
        "_timer",
        "_timer_at",
        "_transport",
        "_unproductive",
        "_untaken",
        "_waiter",
        "fields",
        "idle_since",
        "is_complete",
        "on_body",
        "on_header",
        "origin",
        "status",
    )

    _transport: asyncio.Transport
    _timeouts: ExchangeTimeouts
    status: int
    # Names in lower case; of a repeated field the last one.
    fields: dict[bytes, bytes]

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.is_complete = False
        self._loop = loop
        self._is_busy = False
        self._is_lost = False
        self._is_paused = False
        self._is_sending = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        self._reading = 0
        self._fields: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        # The parser calls these once for each field and each chunk; methods of built-in types spare it
        # the frame that a method of ours would take.
        self.on_header = self._fields.__setitem__
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)
        # What the lenient half of the world's servers gets wrong, without harm to how a message is framed.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def is_open(self) -> bool:
        return not self._is_lost and not self._transport.is_closing()

    # --- One exchange ---------------------------------------------------------------------------------

    def send(self, request: tuple[bytes, bytes], timeouts: ExchangeTimeouts, *, keep_alive: bool) -> None:
        """Write head and body of a request. The connection must be open and idle."""
        self._timeouts = timeouts
        self._keep_alive = keep_alive
        self._is_busy = True
        self._has_head = False
        self._is_framed = False
        self._can_stay = False
        self._failure: OSError | None = None
        self._unproductive = 0
        self._untaken = 0
        self.is_complete = False
        self._fields.clear()
        self._transport.writelines(request)

    async def head(self) -> int:
        """Wait for the response's head and return its status. Interim responses (1xx) are passed over."""
        while not self._has_head:
            if self._failure is not None:
                raise self._failure
            await self._arrival(self._timeouts.first_byte)
        return self.status

    async def read(self) -> bytes:
        """Wait for more of the body and return all that has come; nothing at its end."""
        while not self._parts:
            if self.is_complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._arrival(self._timeouts.between_bytes)
        parts = self._parts
        taken = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._untaken = 0
        if self._is_paused:
            self._resume()
        return taken

    def shorten_deadline(self, seconds: float) -> None:
        """Move the deadline of the exchange to this many seconds from now, if that is earlier."""
        ends_at = min(self._timeouts.ends_at, self._loop.time() + seconds)
        self._timeouts = self._timeouts._replace(ends_at=ends_at)

    def mark_idle(self) -> bool:
        """Whether the exchange ended so that another may follow; if so, the connection is idle now."""
        # An answer may come before the request is sent to its end: what is left would open the next one.
        if not (self._is_busy and self.is_complete and self._can_stay and self.is_open) or self._is_sending:
            return False
        self._is_busy = False
        self._parts.clear()
        if self._is_paused:
            self._resume()
        return True

    def abort(self) -> None:
        """Close the connection now, whatever is under way: upstream must stop."""
        self._is_lost = True
        self._stop_timer()
        self._transport.abort()

    # --- Waiting --------------------------------------------------------------------------------------

    def _arrival(self, seconds: float) -> asyncio.Future[None]:
        """A future that is done when something has changed. Silence counts only while somebody waits."""
        self._waiter = waiter = self._loop.create_future()
        now = self._loop.time()
        ends_at = self._timeouts.ends_at
        if now >= ends_at:
            self._fail(TimeoutError())
        else:
            self._set_deadline(ends_at if self._is_sending else min(now + seconds, ends_at))
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _set_deadline(self, deadline: float) -> None:
        """Set the deadline of a wait. A timer that is due earlier stays, and is set anew when it fires."""
        self._deadline = deadline
        if self._timer is None or self._timer_at > deadline:
            self._stop_timer()
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        else:
            self._fail(TimeoutError())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, failure: OSError) -> None:
        self._failure = self._failure or failure
        self.abort()
        self._wake()

    def _resume(self) -> None:
        self._is_paused = False
        if not self._is_lost:
            self._transport.resume_reading()

    # --- What the transport calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # So that `resume_writing` tells when the last byte is gone: the wait for an answer starts there.
        # A plain transport pauses above the mark, one of TLS already at it.
        self._transport.set_write_buffer_limits(high=1 if self.origin.is_secure else 0, low=0)

    def data_received(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._is_busy:
            self.abort()
            return
        self._reading = len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._can_stay = False
        else:
            self._note_progress(len(data))
            return
        # A whole answer with something behind it is still an answer.
        if self.is_complete:
            self._wake()
        else:
            self._fail(ResponseMalformed())

    def _note_progress(self, size: int) -> None:
        if self._parts or self.is_complete:
            self._unproductive = 0
            self._untaken += size
            if self._untaken > READ_BUFFER_BYTES and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            self._wake()
        else:
            self._unproductive += size
            if self._unproductive > MAX_HEAD_BYTES:
                self._fail(ResponseMalformed())

    def eof_received(self) -> None:
        self._note_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end(exc)
        self._stop_timer()
        # It holds methods of this object; without it both go when the last user does.
        del self._parser

    def _note_end(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._is_busy and not self.is_complete and self._failure is None:
            if self._has_head and not self._is_framed and exc is None:
                self.is_complete = True
            else:
                self._failure = ResponseCut()
        self._wake()

    def pause_writing(self) -> None:
        self._is_sending = True

    def resume_writing(self) -> None:
        self._is_sending = False
        if self._waiter is not None and not self._has_head:
            sent_at = self._loop.time()
            self._set_deadline(min(sent_at + self._timeouts.first_byte, self._timeouts.ends_at))

    # --- What the parser calls ------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._has_head:
            raise ResponseMalformed

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # 101 goes no further: the parser itself stops there.
            self._fields.clear()
            return
        if self._unproductive + self._reading > MAX_HEAD_BYTES and self._size_of_fields() > MAX_HEAD_BYTES:
            raise ResponseMalformed
        self.status = status
        self.fields = fields = {name.lower(): value for name, value in self._fields.items()}
        coding = fields.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise ResponseMalformed
        self._is_framed = coding is not None or b"content-length" in fields
        self._has_head = True
        self._unproductive = 0
        self._wake()

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_complete = True
            self._can_stay = self._keep_alive and self._parser.should_keep_alive()

    def _size_of_fields(self) -> int:
        return sum(len(name) + len(value) for name, value in self._fields.items())
