"""
Backends that send without pause, to many clients at once: another customer's chat goes on meanwhile.

The short form. The long one, which says what it measured:
FLOODED_CLIENTS=100 FLOODED_SECONDS=10 python -m pytest tests/e2e/attacks/test_backend_flood.py -n 0 -s
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from billing.models import Reservation
from tests.e2e.attacks.helpers import SIZES
from tests.e2e.process_memory import megabytes
from tests.e2e.streams.raw_request import request_bytes
from tests.e2e.waiting import until
from tests.harness.live_server import UNLIMITED, LiveServer, live_server
from tests.inference.backends.upstreams.hostile.server import hostile_upstream
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import ApiCustomer, question

CLIENTS = int(os.environ.get("FLOODED_CLIENTS", "40"))
SECONDS = float(os.environ.get("FLOODED_SECONDS", "1"))
# A neighbour has waited 30 to 60 seconds where a whole read was handled at once, and a fraction of one since.
# The rest is for a machine that does other things too.
PATIENCE_SECONDS = 4
# A whole answer is kept until its end or its deadline; the rest is bounded by buffers.
MAX_GROWTH_MEGABYTES = 2.5 * CLIENTS
# How clients behave, and the model that they ask for: one for each kind of backend and of framing.
FLOODS = [
    ("mute", "flood"),
    ("mute", "flood/messages"),
    ("reading", "flood_in_chunks"),
    ("reading", "flood/responses"),
    ("whole", "flood"),
]

pytestmark = [
    pytest.mark.one_database,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc"),
]


@contextlib.contextmanager
def serving(environment: dict[str, str]) -> Iterator[LiveServer]:
    with hostile_upstream() as url, live_server(environment, settings=UNLIMITED) as running:
        chat = make_backend("chat", "openai", base_url=f"{url}/v1")
        for name in ("flood", "flood_in_chunks", "good"):
            deploy(make_model(name, **SIZES), chat, name)
        messages = make_backend("messages", "anthropic", base_url=url)
        deploy(make_model("flood/messages", **SIZES), messages, "flood")
        native = make_backend("native", "openai", base_url=f"{url}/v1", options={"api": "responses"})
        deploy(make_model("flood/responses", **SIZES), native, "flood")
        yield running


def test_neighbours_go_on_while_backends_flood(
    customer: ApiCustomer, process_environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(process_environment) as running:
        chat_seconds(running, customer.value)
        before = megabytes(running)
        for behaviour, model in FLOODS:
            request = request_bytes(customer, model, max_tokens=90_000)
            if behaviour == "whole":
                request = request.replace(b'"stream": true', b'"stream":false')
            with flooded(running, request, is_reading=behaviour == "reading"):
                slowest = slowest_chat(running, customer.value)
            growth = megabytes(running) - before
            with capsys.disabled():
                print(f"\n{behaviour}, {model}: slowest chat {slowest:.2f} s, {growth:+.0f} MB", end="")  # noqa: T201
            assert slowest < PATIENCE_SECONDS, (behaviour, model)
            assert growth < MAX_GROWTH_MEGABYTES, (behaviour, model)
        until(lambda: not Reservation.objects.filter(state="held").exists(), 30)


@contextlib.contextmanager
def flooded(running: LiveServer, request: bytes, *, is_reading: bool) -> Iterator[None]:
    """Clients that have sent the request, and read all that comes or nothing."""
    clients = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(CLIENTS)]
    for client in clients:
        client.sendall(request)
    is_over = threading.Event()
    reading = threading.Thread(target=_read, args=(clients if is_reading else [], is_over))
    reading.start()
    try:
        yield
    finally:
        is_over.set()
        reading.join()
        for client in clients:
            client.close()


def _read(clients: list[socket.socket], is_over: threading.Event) -> None:
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLIN)
    while clients and not is_over.is_set():
        for descriptor, _ in poll.poll(100):
            if not os.read(descriptor, 256 * 1024):
                poll.unregister(descriptor)


def slowest_chat(running: LiveServer, key: str) -> float:
    ends_at = time.monotonic() + SECONDS
    slowest = chat_seconds(running, key)
    while time.monotonic() < ends_at:
        slowest = max(slowest, chat_seconds(running, key))
    return slowest


def chat_seconds(running: LiveServer, key: str) -> float:
    """How long a whole answer of a few words takes, over a new connection."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(question("good")), headers)
        answer = connection.getresponse()
        body = answer.read()
    assert answer.status == 200, body
    return time.monotonic() - started
