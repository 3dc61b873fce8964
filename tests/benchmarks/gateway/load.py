"""
A client that keeps so many requests going at once and remembers how long each took, to the last one.

It stops sending when the time is up and waits for what is under way, so that every answer is counted and what
never comes is seen: a request that hangs is an error here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Any, cast

import httptools
import uvloop

from tests.benchmarks.gateway.upstream import MARK

HANG_SECONDS = 45
PATH = "/v1/chat/completions"
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."},
    {"role": "user", "content": "What would you say to somebody who asks for the hundredth time?"},
]
_MARK = MARK.encode()
_DONE = b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Cell:
    """One load: what is asked, by how many at once."""

    name: str
    model: str
    concurrency: int
    is_stream: bool = False
    # What the upstream offers to all of them together; None where it sends as fast as it can.
    offered_per_second: int | None = None

    @property
    def words(self) -> int:
        return int(self.model.removeprefix("mock-t").split("-r")[0])

    @property
    def stream_seconds(self) -> float:
        """How long one stream of it takes, if the upstream keeps to a rate."""
        a_second = int(self.model.split("-r")[1])
        return self.words / a_second if a_second else 0.0

    @property
    def body(self) -> bytes:
        body: dict[str, Any] = {"model": self.model, "messages": MESSAGES, "max_tokens": 400}
        if self.is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(body).encode()


@dataclass(frozen=True, slots=True)
class Address:
    """Where the load goes, and with which of several keys in turn."""

    port: int
    keys: Sequence[str] = ("sk-none",)
    headers: Mapping[str, str] = field(default_factory=dict)

    def requests(self, cell: Cell) -> list[bytes]:
        """The bytes of one request for each key."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        heads = [
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {key}\r\n{extra}Content-Length: {len(cell.body)}\r\n\r\n"
            for key in self.keys
        ]
        return [head.encode() + cell.body for head in heads]


@dataclass(slots=True)
class Measured:
    """What one cell came to, in one round."""

    seconds: float
    # Answers with 200, whole; those within the time, per second, are the rate.
    answered: int
    per_second: float
    errors: dict[str, int]
    # Requests that the client itself cut off at the end; the gateway may have finished them or not.
    cut: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    first_p50_ms: float | None = None
    first_p99_ms: float | None = None
    chunks_per_second: float | None = None
    # Processor time that the target took for each request, or each chunk of a stream. On a busy machine this
    # is what can still be compared.
    cpu_us: float | None = None
    # Cores in use meanwhile, by whom.
    cores: dict[str, float] = field(default_factory=dict)
    client: str = "own"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class _Tally:
    """What all connections of one cell saw."""

    def __init__(self, seconds: float, ramp_seconds: float = 0.0) -> None:
        self.since = time.perf_counter() + ramp_seconds
        self.until = self.since + seconds
        self.answered = self.in_time = self.chunks_in_time = 0
        self.latencies: list[float] = []
        self.firsts: list[float] = []
        self.errors: Counter[str] = Counter()

    def end(self, status: int, sent: float, first: float | None, is_whole: bool) -> None:
        now = time.perf_counter()
        if status != 200:
            self.errors[f"status {status}"] += 1
        elif not is_whole:
            self.errors["stream without its end"] += 1
        else:
            self.answered += 1
            self.in_time += self.since <= now <= self.until
            if sent >= self.since:
                self.latencies.append(now - sent)
                if first is not None:
                    self.firsts.append(first - sent)

    def count(self, words: int) -> None:
        if self.since <= time.perf_counter() <= self.until:
            self.chunks_in_time += words


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the last was answered, until the time is up."""

    transport: asyncio.Transport
    # Of the request under way.
    _first: float | None
    _has_end: bool
    _tail: bytes

    def __init__(
        self, tally: _Tally, requests: Sequence[bytes], offset: int, is_stream: bool, delay: float = 0.0
    ) -> None:
        self._tally = tally
        self._requests = cycle([*requests[offset:], *requests[:offset]])
        self._is_stream = is_stream
        self._delay = delay
        self._is_busy = False
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._send)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_busy:
            self._is_busy = False
            self._tally.errors["connection lost"] += 1
        if not self.is_over.done():
            self.is_over.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._tally.errors["not HTTP"] += 1
            self._is_busy = False
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        if not self._is_stream:
            return
        # A word, or the end, may come in two pieces.
        seen = self._tail + body
        words = seen.count(_MARK)
        self._tally.count(words)
        if words and self._first is None:
            self._first = time.perf_counter()
        self._has_end = self._has_end or _DONE in seen
        rest = seen[seen.rfind(_MARK) + len(_MARK) :] if words else seen
        self._tail = rest[-len(_DONE) :]

    def on_message_complete(self) -> None:
        self._is_busy = False
        is_whole = self._has_end or not self._is_stream
        self._tally.end(self._parser.get_status_code(), self._sent, self._first, is_whole)
        if not self._parser.should_keep_alive():
            self._tally.errors["connection not kept"] += 1
            self.transport.close()
        elif time.perf_counter() < self._tally.until:
            self._send()
        else:
            self.transport.close()

    def give_up(self) -> None:
        if self._is_busy:
            self._is_busy = False
            self._tally.errors["hung"] += 1
        self.transport.abort()

    def _send(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._tail, self._first, self._has_end = b"", None, False
        self._is_busy = True
        self._sent = time.perf_counter()
        self.transport.write(next(self._requests))


async def _drive(address: Address, cell: Cell, seconds: float) -> Measured:
    loop = asyncio.get_running_loop()
    requests = address.requests(cell)
    # Clients do not all come at the same moment: their beginnings are spread over one stream's time, and are
    # counted from then on.
    ramp = cell.stream_seconds if cell.is_stream else 0.0
    tally = _Tally(seconds, ramp)
    connections: list[_Connection] = []
    for number in range(cell.concurrency):

        def make(number: int = number) -> _Connection:
            delay = ramp * number / cell.concurrency
            return _Connection(tally, requests, number % len(requests), cell.is_stream, delay)

        _, connection = await loop.create_connection(make, "127.0.0.1", address.port)
        connections.append(connection)
    waiting = {connection.is_over for connection in connections}
    await asyncio.wait(waiting, timeout=ramp + seconds + HANG_SECONDS)
    for connection in connections:
        if not connection.is_over.done():
            connection.give_up()
    return Measured(
        seconds=seconds,
        answered=tally.answered,
        per_second=tally.in_time / seconds,
        errors=dict(tally.errors),
        p50_ms=percentile(tally.latencies, 0.50) * 1000,
        p99_ms=percentile(tally.latencies, 0.99) * 1000,
        first_p50_ms=percentile(tally.firsts, 0.50) * 1000 if cell.is_stream else None,
        first_p99_ms=percentile(tally.firsts, 0.99) * 1000 if cell.is_stream else None,
        chunks_per_second=tally.chunks_in_time / seconds if cell.is_stream else None,
    )


def drive(address: Address, cell: Cell, seconds: float) -> Measured:
    """Put this load on this address for so long."""
    return uvloop.run(_drive(address, cell, seconds))


async def _answers(address: Address, cell: Cell) -> bool:
    tally = _Tally(0)
    loop = asyncio.get_running_loop()
    requests = address.requests(cell)[:1]
    _, connection = await loop.create_connection(
        lambda: _Connection(tally, requests, 0, cell.is_stream), "127.0.0.1", address.port
    )
    await asyncio.wait({connection.is_over}, timeout=HANG_SECONDS)
    connection.transport.abort()
    return tally.answered == 1


def answers(address: Address, cell: Cell) -> bool:
    """Whether one request is answered: a server that hangs makes no errors for others to count."""
    return uvloop.run(_answers(address, cell))
