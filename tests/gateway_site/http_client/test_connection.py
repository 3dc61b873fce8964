"""One connection: every answer that HTTP/1.1 allows, cut anywhere, and none that it does not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.http_client.connection import (
    MAX_HEAD_BYTES,
    READ_BUFFER_BYTES,
    ExchangeTimeouts,
    Origin,
    ResponseCut,
    ResponseMalformed,
    UpstreamConnection,
)

BODY = b"data: one\n\ndata: two\n\n"
OK = b"HTTP/1.1 200 OK\r\n"
COUNTED = OK + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDED = b"0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
PIECES = CHUNKED + b'b;name="v;x"\r\ndata: one\n\n\r\n0B\r\ndata: two\n\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n'

Steps = Callable[[UpstreamConnection, "FakeTransport"], Awaitable[None]]


class FakeTransport:
    """A fake transport, which records what was done with it."""

    def __init__(self) -> None:
        self.sent = b""
        self.writes = 0
        self.is_aborted = False
        self.is_paused = False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high == low == 0

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.writes += 1
        self.sent += b"".join(parts)

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def exchange(steps: Steps, *, keep_alive: bool = True, first_byte: float = 5, between: float = 5) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        connection, transport = UpstreamConnection(loop, Origin(False, "h", 80)), FakeTransport()
        connection.connection_made(cast(Any, transport))
        send(connection, keep_alive=keep_alive, first_byte=first_byte, between=between)
        async with asyncio.timeout(10):
            await steps(connection, transport)
        connection.abort()

    asyncio.run(run())


def send(
    connection: UpstreamConnection, *, keep_alive: bool = True, first_byte: float = 5, between: float = 5
) -> None:
    ends_at = asyncio.get_running_loop().time() + 5
    connection.send((b"HEAD", b"BODY"), ExchangeTimeouts(first_byte, between, ends_at), keep_alive=keep_alive)


async def whole(connection: UpstreamConnection) -> bytes:
    body = b""
    while part := await connection.read():
        body += part
    return body


def response_of(*pieces: bytes, ends: bool = False) -> tuple[int, bytes, bool]:
    """The status, the body and whether another exchange may follow."""
    outcome = (0, b"", False)

    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        nonlocal outcome
        for piece in pieces:
            connection.data_received(piece)
        if ends:
            connection.eof_received()
        outcome = (await connection.head(), await whole(connection), connection.mark_idle())

    exchange(steps)
    return outcome


def test_it_works() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        assert (transport.sent, transport.writes) == (b"HEADBODY", 1)
        connection.data_received(COUNTED)

        assert await connection.head() == 200
        assert connection.fields == {b"content-length": b"22"}
        assert await connection.read() == BODY
        assert await connection.read() == b""
        assert connection.mark_idle()
        assert not transport.is_aborted

    exchange(steps)


# --- Answers that are taken -------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [COUNTED, PIECES, INTERIM + COUNTED, INTERIM + PIECES])
def test_an_answer_may_be_cut_at_every_byte(answer: Any) -> None:
    for place in range(1, len(answer)):
        assert response_of(answer[:place], answer[place:]) == (200, BODY, True), place
    assert response_of(*(answer[at : at + 1] for at in range(len(answer)))) == (200, BODY, True)


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=20),
    interim=st.integers(0, 3),
    is_counted=st.booleans(),
)
def test_any_body_in_any_chunks_arrives_whole_however_it_is_cut(
    chunks: Any, cuts: Any, interim: Any, is_counted: Any
) -> None:
    body = b"".join(chunks)
    if is_counted:
        answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        answer = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + ENDED
    answer = b"HTTP/1.1 102 Processing\r\n\r\n" * interim + answer
    places = sorted({0, len(answer), *(cut % len(answer) for cut in cuts)})

    pieces = [answer[start:stop] for start, stop in itertools.pairwise(places)]

    assert response_of(*pieces) == (200, body, True)


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_no_bytes_make_it_raise_anything_but_its_own_faults(pieces: Any, has_head: Any) -> None:
    with contextlib.suppress(ResponseMalformed, ResponseCut):
        response_of(*([CHUNKED] if has_head else []), *pieces, ends=True)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK + b"\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", 200, b""),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nabc", 200, b"abc"),
    ],
)
def test_a_body_without_a_length_lasts_until_the_other_side_closes(
    answer: Any, status: Any, body: Any
) -> None:
    assert response_of(answer, ends=True) == (status, body, False)


@pytest.mark.parametrize(
    ("answer", "can_stay"),
    [
        (OK + b"Content-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n", False),
        (OK + b"Connection: x, Close\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_the_connection_header_of_the_server_decides_keep_alive(answer: Any, can_stay: Any) -> None:
    assert response_of(answer)[2] is can_stay


def test_a_connection_without_keep_alive_is_not_marked_idle() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.data_received(COUNTED)
        assert await whole(connection) == BODY
        assert not connection.mark_idle()

    exchange(steps, keep_alive=False)


def test_bare_line_feeds_end_header_lines() -> None:
    assert response_of(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi") == (200, b"hi", True)


def test_a_hundred_headers_are_accepted() -> None:
    fields = b"".join(b"X-Field-%d: %b\r\n" % (number, b"v" * 200) for number in range(150))

    assert response_of(OK + fields + b"Content-Length: 2\r\n\r\nhi") == (200, b"hi", True)


# --- Answers that are not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        [b"220 smtp.example ESMTP\r\n\r\n"],
        [b"\x16\x03\x01\x02\x00"],
        [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nPRI *"],
        [OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n"],
        [OK + b"Transfer-Encoding: gzip\r\n\r\n"],
        [OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"],
        [OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"],
        [OK + b"Content-Length: -1\r\n\r\n"],
        [CHUNKED + b"zz\r\n"],
        [CHUNKED + b"2\r\nabcd\r\n"],
        [CHUNKED + b"fffffffffffffffff\r\n"],
        # More than a head may hold, in one piece and in many.
        [OK + b"X: " + b"v" * MAX_HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n"],
        [OK] + [b"X-A: " + b"v" * 995 + b"\r\n"] * 70,
        [b"HTTP/1.1 103 Early Hints\r\nX: " + b"v" * 1000 + b"\r\n\r\n"] * 70,
        [b"\r\n" * 500] * 70,
        [CHUNKED, b"1;x=", *([b"y" * 1000] * 70)],
        [CHUNKED, b"0\r\n", *([b"T: " + b"y" * 1000 + b"\r\n"] * 70)],
    ],
)
def test_bytes_that_are_not_a_response_end_the_connection(pieces: Any) -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        for piece in pieces:
            connection.data_received(piece)
        with pytest.raises(ResponseMalformed):
            await whole(connection)
        assert transport.is_aborted
        assert not connection.mark_idle()

    exchange(steps)


@pytest.mark.parametrize("behind", [COUNTED, b"garbage", b"HTTP/1.1 408 Timeout\r\n"])
@pytest.mark.parametrize("is_apart", [False, True])
def test_bytes_behind_a_response_belong_to_no_response(behind: Any, is_apart: Any) -> None:
    pieces = [COUNTED, behind] if is_apart else [COUNTED + behind]

    assert response_of(*pieces) == (200, BODY, False)


def test_bytes_on_an_idle_connection_close_it() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.data_received(COUNTED)
        await whole(connection)
        assert connection.mark_idle()

        connection.data_received(b"HTTP/1.1 200 OK\r\n")

        assert transport.is_aborted
        assert not connection.is_open

    exchange(steps)


@pytest.mark.parametrize("place", [len(COUNTED) - 1, len(COUNTED) - len(BODY) + 1])
@pytest.mark.parametrize("way", ["end", "reset"])
def test_what_came_before_a_cut_is_read_before_the_error_is_raised(place: Any, way: Any) -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.data_received(COUNTED[:place])
        if way == "end":
            connection.eof_received()
        else:
            connection.connection_lost(ConnectionResetError())

        assert await connection.read() == COUNTED[-len(BODY) : place]
        with pytest.raises(ResponseCut):
            await connection.read()
        assert not connection.mark_idle()

    exchange(steps)


def test_a_body_without_a_length_that_is_reset_is_not_whole() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.data_received(OK + b"\r\nhalf")
        connection.connection_lost(ConnectionResetError())

        with pytest.raises(ResponseCut):
            await whole(connection)

    exchange(steps)


def test_an_answer_before_the_request_is_sent_leaves_no_connection_to_reuse() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.pause_writing()
        connection.data_received(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

        assert await connection.head() == 413
        assert await connection.read() == b""
        assert not connection.mark_idle()

    exchange(steps)


# --- Waiting and memory -----------------------------------------------------------------------------


def test_backpressure_pauses_reading_and_bounds_the_buffer() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.data_received(CHUNKED)
        piece = b"2000\r\n" + b"x" * 8192 + b"\r\n"
        taken = 0
        while not transport.is_paused:
            connection.data_received(piece)
            taken += 8192
        assert READ_BUFFER_BYTES - 8192 <= taken <= READ_BUFFER_BYTES + 8192

        assert len(await connection.read()) == taken
        assert not transport.is_paused

    exchange(steps)


def test_a_connection_paused_at_the_end_is_idle_and_reads_again() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        size = 2 * READ_BUFFER_BYTES
        connection.data_received(OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
        assert transport.is_paused

        assert connection.mark_idle()

        assert not transport.is_paused

    exchange(steps)


def test_the_wait_for_an_answer_begins_with_the_last_byte_sent() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        connection.pause_writing()
        waiting = asyncio.ensure_future(connection.head())
        await asyncio.sleep(0.15)
        assert not waiting.done()
        connection.resume_writing()
        await asyncio.sleep(0.05)
        assert not waiting.done()

        with pytest.raises(TimeoutError):
            await waiting
        assert transport.is_aborted

    exchange(steps, first_byte=0.1)


@pytest.mark.slow
def test_each_silence_is_measured_by_itself_with_one_timer(monkeypatch: Any) -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        timers: list[float] = []

        def counted(when: float, *args: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return call_at(when, *args)

        monkeypatch.setattr(loop, "call_at", counted)
        connection.data_received(CHUNKED)
        for _ in range(40):
            reading = asyncio.ensure_future(connection.read())
            call_at(loop.time() + 0.01, connection.data_received, b"1\r\nx\r\n")
            assert await reading == b"x"
        assert len(timers) < 10

        with pytest.raises(TimeoutError):
            await connection.read()

    exchange(steps, between=0.2)


def test_a_shortened_deadline_ends_the_exchange_sooner() -> None:
    async def steps(connection: UpstreamConnection, transport: FakeTransport) -> None:
        loop = asyncio.get_running_loop()
        connection.data_received(CHUNKED)
        loop.call_soon(connection.data_received, b"1\r\nx\r\n")
        assert await connection.read() == b"x"  # with a timer that runs for longer
        connection.shorten_deadline(0.05)
        started = loop.time()

        with pytest.raises(TimeoutError):
            await connection.read()
        assert loop.time() - started < 2

    exchange(steps)
