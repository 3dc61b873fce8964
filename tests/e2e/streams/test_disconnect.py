"""Who hangs up anywhere in a stream pays for what was generated, and the backend is let go at once."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from billing.models import Reservation
from billing.prices.bill import charge
from tests.e2e.streams.raw_request import request_bytes
from tests.e2e.waiting import until
from tests.harness.live_server import LiveServer, live_server
from tests.inference.backends.upstreams.faulty.server import Exchange, FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer
from tests.inference.serving.expected_usage import PRICE, observed, reported

# For every byte: HANG_UP_EVERY=1 python -m pytest tests/e2e/streams/test_disconnect.py
EVERY = int(os.environ.get("HANG_UP_EVERY", "37"))
WORDS = 20
STEADY = f"cumulative?tokens={WORDS}&delay=0.05"


@contextmanager
def serving(
    customer: ApiCustomer, environment: dict[str, str]
) -> Iterator[tuple[LiveServer, FaultyUpstream]]:
    with upstream_in_thread() as upstream, live_server(environment) as running:
        backend = make_backend("faulty", "openai", base_url=f"{upstream.url}/v1")
        for name in (STEADY, *(f"hang_midstream?tokens={words}" for words in range(WORDS))):
            deploy(make_model(name.replace("?", ":"), **COLUMNS), backend, name)
        yield running, upstream


async def read_and_leave(port: int, request: bytes, *, bytes_read: int = 0, words_read: int = 0) -> str:
    """Read so many bytes of the body, or words, then reset the connection. The id of the request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(bytes_read)
    seen = b""
    while seen.count(b'"content":"') < words_read:
        seen += await reader.read(65536)
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return next(
        line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"x-request-id")
    ).decode()


def assert_let_go(exchanges: list[Exchange], left_at: float) -> None:
    for exchange in exchanges:
        until(lambda exchange=exchange: exchange.is_complete or exchange.closed_at, 5)
        assert exchange.is_complete or (exchange.closed_at or 0) - left_at < 1


def rows_of(identifiers: list[str]) -> list[Reservation]:
    def all_settled() -> list[Reservation] | None:
        rows = Reservation.objects.filter(pk__in=identifiers).exclude(state="held")
        return list(rows) if len(rows) == len(identifiers) else None

    found = {str(row.pk): row for row in until(all_settled, 20)}
    return [found[identifier] for identifier in identifiers]


def test_a_disconnect_is_charged_what_was_generated(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    with serving(customer, process_environment) as (running, upstream):
        check_after_every_word(customer, running, upstream)
        check_at_any_byte(customer, running, upstream)


def check_after_every_word(customer: ApiCustomer, running: LiveServer, upstream: FaultyUpstream) -> None:
    # The backend says so many words and falls silent; nothing is on its way when the client leaves.
    async def leave() -> list[str]:
        leaving = [
            read_and_leave(
                running.port, request_bytes(customer, f"hang_midstream:tokens={words}"), words_read=words
            )
            for words in range(1, WORDS)
        ]
        return await asyncio.gather(*leaving)

    identifiers = asyncio.run(leave())
    left_at = time.monotonic()

    for words, row in enumerate(rows_of(identifiers), start=1):
        assert (row.state, row.basis) == ("settled", "observed")
        assert row.charged_nanousd == charge(PRICE, observed(words)), words
    assert_let_go(upstream.exchanges, left_at)


def check_at_any_byte(customer: ApiCustomer, running: LiveServer, upstream: FaultyUpstream) -> None:
    request = request_bytes(customer, STEADY.replace("?", ":"))
    whole = len(b"".join(_read_all(running.port, request)).partition(b"\r\n\r\n")[2])
    del upstream.exchanges[:]
    offsets = range(0, whole, EVERY)
    charged: list[int] = []
    # In groups, so that the server is not too busy to notice who leaves.
    for start in range(0, len(offsets), 40):
        rows = rows_of(asyncio.run(_leave_at(running.port, request, offsets[start : start + 40])))
        assert {row.state for row in rows} == {"settled"}
        charged += [row.charged_nanousd or 0 for row in rows]
    until(lambda: all(each.is_complete or each.closed_at for each in upstream.exchanges), 5)

    # Usage comes with every chunk, so the only doubt is about a word that was on its way at that moment.
    words_of = {charge(PRICE, reported(words)): words for words in range(WORDS + 1)}
    paid = sorted(words_of[amount] for amount in charged)
    # The scheduled probe of backends asks for their models, once a minute.
    asked = [exchange for exchange in upstream.exchanges if exchange.path.endswith("/chat/completions")]
    generated = sorted(exchange.tokens_emitted for exchange in asked)
    assert len(generated) == len(paid) == len(offsets)
    assert all(0 <= made - paid_for <= 1 for made, paid_for in zip(generated, paid, strict=True))
    assert len(set(paid)) > WORDS / 2


async def _leave_at(port: int, request: bytes, offsets: range) -> list[str]:
    return await asyncio.gather(*(read_and_leave(port, request, bytes_read=offset) for offset in offsets))


def _read_all(port: int, request: bytes) -> Iterator[bytes]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.replace(b"Host:", b"Connection: close\r\nHost:", 1))
        while data := connection.recv(65536):
            yield data
