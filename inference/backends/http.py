"""
One HTTP conversation with a backend: a POST, and an answer read as it arrives.

aiohttp, one session for each event loop. Nothing of the client's request but the body built for this
backend goes out: no header, no cookie, no proxy from the environment. Redirects are not followed,
compressed answers are not asked for, and every wait and every size has a bound.

Every fault leaves as a BackendError (see `http_failures`), raised outside of the `except` that saw the
original: aiohttp's exceptions carry the request's headers, and with them the credential.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from aiohttp.connector import Connection

from gateway_site.api.errors import (
    ApiError,
    BackendError,
    BackendFailed,
    BackendUnreachable,
    DeadlineExceeded,
)
from inference.backends.addresses import GuardedResolver
from inference.backends.base import Dispatch
from inference.backends.http_failures import failure_of_status
from inference.backends.sse import Decoder, Record, StreamTooLarge
from inference.events import Event

logger = logging.getLogger(__name__)

MAX_WHOLE_ANSWER_BYTES = 16 * 1024 * 1024
MAX_ERROR_BODY_BYTES = 64 * 1024
READ_BUFFER_BYTES = 64 * 1024
# Shorter than what uvicorn, and so vLLM, and llama.cpp grant (5 s): a connection that the server closes
# just as we reuse it is a request whose outcome nobody knows.
KEEP_ALIVE_SECONDS = 4
# How long the end of a finished answer may take before its connection is given up instead of kept.
DRAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. `first_byte` runs from the last byte of the request, `total` from its start."""

    connect: float = 5
    first_byte: float = 60
    between_bytes: float = 60
    total: float = 240


@dataclass(frozen=True, slots=True)
class Request:
    url: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    # Known here only to be kept out of what upstream says.
    credential: str = field(repr=False)
    # For the log: which backend.
    backend: str
    max_stream_bytes: int


class Reader(Protocol):
    """Turns the records of one answer into events. One for each request."""

    is_done: bool

    def feed(self, record: Record) -> list[Event]: ...

    def feed_whole(self, body: bytes) -> list[Event]:
        """An answer that came as one JSON object although a stream was asked for."""
        ...

    def end(self) -> list[Event]:
        """Nothing more will come. Raise BackendFailed if that is too early."""
        ...


class Client:
    """Sessions to backends, one for each event loop, made when first used."""

    def __init__(self, timeouts: Timeouts | None = None, resolver: GuardedResolver | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._resolver = resolver
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession]
        self._sessions = WeakKeyDictionary()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session of the running loop. For the end of a process."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def post(self, request: Request, dispatch: Dispatch) -> Answer:
        """The answer to the request, once its head is here and says success; else BackendError."""
        flight = _Flight(dispatch)
        try:
            response = await self._session().post(
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=self.timeouts.total,
                    connect=self.timeouts.connect,
                    sock_read=self.timeouts.first_byte,
                ),
                middlewares=[flight.board],
            )
        except (aiohttp.ClientError, OSError) as exc:
            failure = flight.failure(exc)
            self._log(request, type(exc).__name__)
        else:
            if response.status == 200:
                return Answer(response, self.timeouts, request)
            failure = await self._refusal(request, response)
            self._log(request, f"status {response.status}")
        raise failure

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    # How many requests run at once was decided at admission.
                    limit=0,
                    keepalive_timeout=KEEP_ALIVE_SECONDS,
                    resolver=self._resolver or GuardedResolver(),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity", "User-Agent": "inference-gateway"},
                request_class=_Dispatched,
                auto_decompress=False,
                trust_env=False,
                read_bufsize=READ_BUFFER_BYTES,
            )
        return session

    async def _refusal(self, request: Request, response: aiohttp.ClientResponse) -> BackendError:
        body = b""
        try:
            async with asyncio.timeout(self.timeouts.between_bytes):
                while len(body) < MAX_ERROR_BODY_BYTES and (chunk := await response.content.readany()):
                    body += chunk
        except (aiohttp.ClientError, OSError):
            pass  # the status alone says what happened
        finally:
            response.release()
        return failure_of_status(
            response.status,
            body,
            retry_after=response.headers.get("Retry-After"),
            credential=request.credential,
        )

    @staticmethod
    def _log(request: Request, what: str) -> None:
        logger.warning("backend %s: %s", request.backend, what)


class _Dispatched(aiohttp.ClientRequest):
    """A request that asks, when the connection stands and before its first byte, whether it may go."""

    flight: _Flight

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        await self.flight.depart(conn)
        return await super().send(conn)


class _Flight:
    """How far one request got, for the one question that money asks: may anything have been generated?"""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._is_sent = False
        self._refusal: Exception | None = None

    async def board(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        assert isinstance(request, _Dispatched)  # noqa: S101 - the session makes no other kind
        request.flight = self
        return await handler(request)

    async def depart(self, connection: Connection) -> None:
        try:
            await self._dispatch()
        except (ApiError, OSError) as exc:
            # Kept, because aiohttp dresses an OSError as its own.
            self._refusal = exc
            raise
        if connection.protocol is None or not connection.protocol.is_connected():
            raise aiohttp.ClientConnectionResetError("closed before the request was sent")
        self._is_sent = True

    def failure(self, exc: Exception) -> Exception:
        if self._refusal is not None:
            return self._refusal
        if not self._is_sent:
            return BackendUnreachable()
        return DeadlineExceeded() if isinstance(exc, TimeoutError) else BackendFailed()


class Answer:
    """A success whose body is still arriving. `close` it in every case."""

    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts, request: Request) -> None:
        self._response = response
        self._content = response.content
        self._request = request
        self._decoder = Decoder(max_stream_bytes=request.max_stream_bytes)
        # Not only when it says so: some servers call their streams text/plain.
        self.is_event_stream = response.content_type != "application/json"
        if response.connection is not None and response.connection.protocol is not None:
            # The wait for the head is over; from here on a silence counts.
            response.connection.protocol.read_timeout = timeouts.between_bytes
            response.connection.protocol.start_timeout()

    async def records(self) -> list[Record] | None:
        """What has arrived since the last call, possibly nothing whole; None at the end."""
        try:
            chunk = await self._content.readany()
            return self._decoder.feed(chunk) if chunk else None
        except (aiohttp.ClientError, OSError, StreamTooLarge) as exc:
            failure = self._failure(exc)
        raise failure

    async def whole(self) -> bytes:
        body = bytearray()
        try:
            while chunk := await self._content.readany():
                body += chunk
                if len(body) > MAX_WHOLE_ANSWER_BYTES:
                    raise StreamTooLarge
            return bytes(body)
        except (aiohttp.ClientError, OSError, StreamTooLarge) as exc:
            failure = self._failure(exc)
        raise failure

    async def drain(self) -> None:
        """Read what is left after the last record, so that the connection can be used again."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while len(await self._content.readany()):
                    pass
        except (aiohttp.ClientError, OSError):
            pass  # `close` gives the connection up

    def close(self) -> None:
        """Keep the connection if the answer was read to its end, else cut it: upstream must stop."""
        if self._content.is_eof():
            self._response.release()
        else:
            self._response.close()

    def _failure(self, exc: Exception) -> BackendError:
        logger.warning("backend %s: %s in the answer", self._request.backend, type(exc).__name__)
        return DeadlineExceeded() if isinstance(exc, TimeoutError) else BackendFailed()


async def converse(
    client: Client, request: Request, reader: Reader, dispatch: Dispatch
) -> AsyncGenerator[Event, None]:
    """The events of one request. Leaving it, in whatever way, has closed or returned the connection."""
    answer = await client.post(request, dispatch)
    try:
        if answer.is_event_stream:
            while not reader.is_done and (records := await answer.records()) is not None:
                for record in records:
                    for event in reader.feed(record):
                        yield event
        else:
            for event in reader.feed_whole(await answer.whole()):
                yield event
        for event in reader.end():
            yield event
        await answer.drain()
    finally:
        answer.close()


def bounded_stream_bytes(tokens: int) -> int:
    """What a stream of so many tokens may weigh: 4 KiB each holds the logprobs of 20 alternatives."""
    return min(4 * 1024 * 1024 + 4096 * tokens, 256 * 1024 * 1024)


def encoded(body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(body)
