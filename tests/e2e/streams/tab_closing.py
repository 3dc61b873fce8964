"""Clients that close their tabs at random moments of a stream, and what is charged for what was generated."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from billing.models import Reservation, ReservationState
from billing.prices.bill import charge
from billing.prices.price import Quantities
from tests.e2e.streams.raw_request import request_bytes
from tests.e2e.waiting import until
from tests.harness.live_server import UNLIMITED, LiveServer, live_server
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import ApiCustomer
from tests.inference.serving.expected_usage import PRICE, UPSTREAM_PROMPT

MODEL = "plain"
WORDS = 60
# Each word is one token, wherever it is counted.
SCRIPT = f"ok?tokens={WORDS}&delay=0.02&wait=0.2&word=%20more"
ANSWER_SECONDS = 0.2 + WORDS * 0.02
AT_ONCE = 20
# Within this time nothing may be held any more.
SETTLE_SECONDS = 60
OPEN = (ReservationState.HELD, ReservationState.UNKNOWN)


@dataclass
class Closings:
    """What came of so many closed tabs. Amounts are in nano-USD."""

    closes: int
    # Those that reached the backend, and the tokens that it generated for them.
    requests_upstream: int = 0
    tokens_emitted: int = 0
    emitted_nanousd: int = 0
    charged_nanousd: int = 0
    held_nanousd: int = 0
    seconds_until_nothing_held: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.charged_nanousd / self.emitted_nanousd


@contextlib.contextmanager
def serving(environment: dict[str, str]) -> Iterator[tuple[LiveServer, FaultyUpstream]]:
    """A server with a model added with no option, whose backend reports usage at its end."""
    settings = {**UNLIMITED, "LOG_LEVEL": "INFO"}  # by which a server says that it is ready
    with upstream_in_thread() as upstream, live_server(environment, settings=settings) as running:
        backend = make_backend("server", "openai", base_url=f"{upstream.url}/v1")
        deploy(make_model(MODEL), backend, SCRIPT)
        yield running, upstream


def close_tabs(environment: dict[str, str], customer: ApiCustomer, closes: int, seed: int) -> Closings:
    """Close so many tabs, wait until nothing is held, and compare what was charged with what was emitted."""
    found = Closings(closes)
    with serving(environment) as (running, upstream):
        asyncio.run(_close_all(running.port, request_bytes(customer, MODEL), closes, random.Random(seed)))
        ended = time.monotonic()
        # A minute from the last close; what is still held then is reported, not waited for.
        with contextlib.suppress(AssertionError):
            until(lambda: not Reservation.objects.filter(state__in=OPEN).exists(), SETTLE_SECONDS)
        found.seconds_until_nothing_held = round(time.monotonic() - ended, 2)
        asked = [exchange for exchange in upstream.exchanges if exchange.path.endswith("/completions")]
        until(lambda: all(exchange.is_complete or exchange.closed_at for exchange in asked))
    found.requests_upstream = len(asked)
    found.tokens_emitted = sum(exchange.tokens_emitted for exchange in asked)
    found.emitted_nanousd = sum(
        charge(PRICE, Quantities(prompt=UPSTREAM_PROMPT, completion=exchange.tokens_emitted))
        for exchange in asked
    )
    found.charged_nanousd = customer.account.settled_nanousd
    found.held_nanousd = customer.account.held_nanousd
    rows = Reservation.objects.values_list("state", "basis", "ended_by")
    found.outcomes = {" ".join(filter(None, row)): count for row, count in Counter(rows).most_common()}
    return found


async def _close_all(port: int, request: bytes, closes: int, chance: random.Random) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def close_one(seconds: float, is_reset: bool) -> None:
        async with free:
            await _open_and_close(port, request, seconds, is_reset=is_reset)

    # One that is read to its end, so that the server has loaded what it needs.
    closing = request.replace(b"Host:", b"Connection: close\r\nHost:", 1)
    await _open_and_close(port, closing, SETTLE_SECONDS, is_reset=False)
    # Some are closed before the backend is asked, and some read to the end.
    moments = [(chance.uniform(0, ANSWER_SECONDS * 1.1), chance.random() < 0.5) for _ in range(closes)]
    await asyncio.gather(*(close_one(*moment) for moment in moments))


async def _open_and_close(port: int, request: bytes, seconds: float, *, is_reset: bool) -> None:
    """Ask, read for so many seconds, and close: as a browser does, or as a machine that lost its network."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await reader.read(65536):
                pass
    if is_reset:
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
