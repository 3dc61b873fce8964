"""
The HTTP client for all that this product asks of other servers, with keep-alive and a connection pool.

`Client.post` gives the response of a backend as it arrives; `Client.fetch` is one whole exchange. There is a
pool for each event loop. Nothing goes out but what the caller built: no header of a customer's request, no
cookie, no proxy from the environment. Redirects are not followed, compressed responses are not asked for,
addresses are guarded against SSRF, and every wait and every size has a bound.

Every fault of `post` leaves as a BackendError (see `failures`), raised outside of the `except` that saw the
original: an OSError can name the address, which is not the customer's to know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from gateway_site.api.errors import BackendError, BackendFailed, BackendUnreachable, DeadlineExceeded
from gateway_site.http_client.connection import ExchangeTimeouts, Origin, UpstreamConnection
from gateway_site.http_client.failures import failure_of_status
from gateway_site.http_client.pool import ConnectionPool
from gateway_site.http_client.request_head import head_of_get, head_of_post
from gateway_site.http_client.sse import ServerSentEvent, SseDecoder, StreamTooLarge
from gateway_site.http_client.ssrf_guard import GuardedResolver

logger = logging.getLogger(__name__)

# Awaited once, after the connection stands and before the first byte of the request leaves this process.
Dispatch = Callable[[], Awaitable[None]]

MAX_WHOLE_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_ERROR_BODY_BYTES = 64 * 1024
# What is handled of a response without giving others a turn: about a millisecond's worth of events.
SLICE_BYTES = 8 * 1024
# Shorter than what uvicorn, and so vLLM, and llama.cpp grant (5 s): a connection that the server closes
# just as we reuse it is a request whose outcome nobody knows.
KEEP_ALIVE_SECONDS = 4
# How long the end of a finished response may take before its connection is closed instead of kept alive.
DRAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bounds in seconds. `first_byte` runs from the last byte of the request, `total` from its start."""

    connect: float = 5
    first_byte: float = 60
    between_bytes: float = 60
    total: float = 240


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A POST to a backend, whole, with what is needed to report on it."""

    url: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    # Known here only to be kept out of what upstream says.
    credential: str = field(repr=False)
    # For the log: which backend.
    backend: str
    max_stream_bytes: int


class ConnectFailed(OSError):
    """No connection could be opened: `strerror` says why, for an operator."""


class ResponseTooLarge(OSError):
    """The body of a fetched response went over the bound of its caller."""


class FetchedResponse(NamedTuple):
    """The status of a whole exchange, and the body where that status is 200; else no body is read."""

    status: int
    body: bytes


class Client:
    """Requests to other servers, over a connection pool for each event loop that is made when first used."""

    def __init__(self, timeouts: Timeouts | None = None, resolver: GuardedResolver | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._resolver = resolver
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionPool] = WeakKeyDictionary()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the idle connections of the running loop. For the end of a process."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()
            # A transport lets go of its socket in the loop's next round.
            await asyncio.sleep(0)

    async def post(self, request: UpstreamRequest, dispatch: Dispatch) -> UpstreamResponse:
        """Send the request and return the response once its head says success; else BackendError."""
        pool = self._pool()
        head = head_of_post(request.url, tuple(request.headers.items()))
        timeouts = self._exchange_timeouts(pool)
        connection = pool.take_idle(head.origin) or await self._dial(pool, head.origin, timeouts, request)
        response = None
        try:
            await dispatch()
            # The dispatch let the loop run: by now it knows of a connection that was closed while idle.
            if not connection.is_open:
                connection = await self._dial(pool, head.origin, timeouts, request)
            if pool.time() >= timeouts.ends_at:
                raise BackendUnreachable
            connection.send((head.before(request.body), request.body), timeouts, keep_alive=head.keep_alive)
            response = await self._response(pool, connection, request)
            return response
        finally:
            if response is None:
                pool.give_back(connection)

    async def fetch(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        seconds: float,
        max_bytes: int,
    ) -> FetchedResponse:
        """
        One whole exchange: GET, or POST where there is a body, over a kept connection if there is one.

        `seconds` is the deadline for all of it, `max_bytes` the bound of the body. Redirects are not followed
        and addresses are guarded against SSRF as for `post`. Raises an OSError: TimeoutError at the deadline,
        ConnectFailed before anything was sent, ResponseTooLarge, ResponseCut or ResponseMalformed after.
        """
        pool = self._pool()
        head = head_of_get(url, headers) if body is None else head_of_post(url, tuple(headers.items()))
        timeouts = ExchangeTimeouts(seconds, seconds, pool.time() + seconds)
        connection = await self._idle_or_new(pool, head.origin, timeouts)
        try:
            request = (head.opening, b"") if body is None else (head.before(body), body)
            connection.send(request, timeouts, keep_alive=head.keep_alive)
            status = await connection.head()
            return FetchedResponse(status, await _body_of(connection, max_bytes) if status == 200 else b"")
        finally:
            pool.give_back(connection)

    async def _idle_or_new(
        self, pool: ConnectionPool, origin: Origin, timeouts: ExchangeTimeouts
    ) -> UpstreamConnection:
        # The loop runs once: by then it knows of a connection that the server closed while it was idle.
        await asyncio.sleep(0)
        if (idle := pool.take_idle(origin)) is not None:
            return idle
        try:
            return await pool.dial(origin, timeouts.ends_at - pool.time())
        except TimeoutError:
            raise
        except OSError as exc:
            reason = exc.strerror or "no address"
        raise ConnectFailed(None, reason)

    def _pool(self) -> ConnectionPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            # A pool refers to its loop, so those of loops that are gone would stay.
            for ended in [known for known in self._pools if known.is_closed()]:
                del self._pools[ended]
            resolver = self._resolver or GuardedResolver()
            pool = ConnectionPool(loop, resolver, keep_alive_seconds=KEEP_ALIVE_SECONDS)
            self._pools[loop] = pool
        return pool

    def _exchange_timeouts(self, pool: ConnectionPool) -> ExchangeTimeouts:
        timeouts = self.timeouts
        return ExchangeTimeouts(timeouts.first_byte, timeouts.between_bytes, pool.time() + timeouts.total)

    async def _dial(
        self, pool: ConnectionPool, origin: Origin, timeouts: ExchangeTimeouts, request: UpstreamRequest
    ) -> UpstreamConnection:
        try:
            return await pool.dial(origin, min(self.timeouts.connect, timeouts.ends_at - pool.time()))
        except OSError as exc:
            _log(request, type(exc).__name__)
        raise BackendUnreachable

    async def _response(
        self, pool: ConnectionPool, connection: UpstreamConnection, request: UpstreamRequest
    ) -> UpstreamResponse:
        failure: BackendError
        try:
            status = await connection.head()
        except OSError as exc:
            failure = _failure(exc)
            _log(request, type(exc).__name__)
        else:
            if status == 200 and connection.fields.get(b"content-encoding", b"identity") == b"identity":
                return UpstreamResponse(pool, connection, request)
            failure = await self._refusal(connection, request)
            _log(request, f"status {status}")
        raise failure

    async def _refusal(self, connection: UpstreamConnection, request: UpstreamRequest) -> BackendError:
        body = b""
        connection.shorten_deadline(self.timeouts.between_bytes)
        try:
            while len(body) < MAX_ERROR_BODY_BYTES and (chunk := await connection.read()):
                body += chunk
        except OSError:
            pass  # the status alone says what happened
        retry_after = connection.fields.get(b"retry-after")
        return failure_of_status(
            connection.status,
            body,
            retry_after=None if retry_after is None else retry_after.decode("latin-1"),
            credential=request.credential,
        )


class UpstreamResponse:
    """A successful response whose body is still arriving. `close` it in every case."""

    def __init__(
        self, pool: ConnectionPool, connection: UpstreamConnection, request: UpstreamRequest
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._request = request
        self._decoder = SseDecoder(max_stream_bytes=request.max_stream_bytes)
        # What the latest read gave, and how much of it the decoder has had.
        self._chunk = b""
        self._decoded_bytes = 0
        self._is_closed = False
        # Not only when it says so: some servers call their streams text/plain.
        media_type = connection.fields.get(b"content-type", b"").partition(b";")[0]
        self.is_event_stream = media_type.strip().lower() != b"application/json"

    async def next_events(self) -> list[ServerSentEvent] | None:
        """The events that have arrived since the last call, possibly none whole; None at the end."""
        try:
            if self._chunk:
                chunk = await self._next_slice()
            else:
                chunk = await self._connection.read()
                if len(chunk) + len(self._decoder.pending) > SLICE_BYTES and chunk:
                    self._chunk = chunk
                    chunk = await self._next_slice()
            return self._decoder.feed(chunk) if chunk else None
        except (OSError, StreamTooLarge) as exc:
            failure = self._failed(exc)
        raise failure

    async def _next_slice(self) -> bytes:
        """The next part of a read that is more than a moment's work, when it is this response's turn."""
        await self.turn()
        start = self._decoded_bytes
        end = start + SLICE_BYTES
        # Between two events if possible: half of one costs the decoder more.
        if (after_event := self._chunk.rfind(b"\n\n", start, end)) > 0:
            end = after_event + 2
        self._decoded_bytes = end
        part = self._chunk[start:end]
        if end >= len(self._chunk):
            self._chunk = b""
            self._decoded_bytes = 0
        return part

    async def whole(self) -> bytes:
        """Read the body to its end, within the bound of the request."""
        try:
            body = await _body_of(
                self._connection, min(MAX_WHOLE_RESPONSE_BYTES, self._request.max_stream_bytes)
            )
            if len(body) > SLICE_BYTES:
                await self.turn()
            return body
        except OSError as exc:
            failure = self._failed(exc)
        raise failure

    def turn(self) -> Awaitable[None]:
        """Await this after every so much work, so that other requests go on meanwhile."""
        return self._pool.turns.next()

    async def drain(self) -> None:
        """Read what is left after the last event, so that the connection can be kept alive."""
        if self._connection.is_complete:
            return
        self._connection.shorten_deadline(DRAIN_SECONDS)
        try:
            while await self._connection.read():
                pass
        except OSError:
            pass  # `close` gives the connection up

    def close(self) -> None:
        """Keep the connection alive if the response was read to its end; else close it, to stop upstream."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.give_back(self._connection)

    def _failed(self, exc: Exception) -> BackendError:
        _log(self._request, f"{type(exc).__name__} in the answer")
        return _failure(exc)


async def _body_of(connection: UpstreamConnection, max_bytes: int) -> bytes:
    body = bytearray()
    while chunk := await connection.read():
        body += chunk
        if len(body) > max_bytes:
            raise ResponseTooLarge
    return bytes(body)


def _failure(exc: Exception) -> BackendError:
    """The error of a request that was sent and got no usable response."""
    return DeadlineExceeded() if isinstance(exc, TimeoutError) else BackendFailed()


def _log(request: UpstreamRequest, what: str) -> None:
    logger.warning("backend %s: %s", request.backend, what)
