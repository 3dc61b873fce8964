"""Clients that keep connections open: silent, slow, too many, or without reading what they asked for."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from billing.models import Reservation
from tests.e2e.waiting import until
from tests.gateway_site.server.http_corpus import (
    GET,
    NEXT,
    Exchange,
    RawAnswer,
    assert_well_formed,
    exchange,
    parsed,
)
from tests.harness.live_server import ROOT, LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

HEAD_SECONDS, BODY_SECONDS = 1, 2
SHORT_CLOCKS = {
    "GATEWAY_HEAD_TIMEOUT_SECONDS": str(HEAD_SECONDS),
    "GATEWAY_BODY_TIMEOUT_SECONDS": str(BODY_SECONDS),
    "GATEWAY_SLOW_READER_SECONDS": "1",
}
# What a client sends between two pauses, for longer than any clock: the server must end it.
DRIPS, DRIP_SECONDS = 60, 0.4


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def dripped(first: bytes) -> Iterator[bytes]:
    yield first
    for _ in range(DRIPS):
        time.sleep(DRIP_SECONDS)  # the slowness is what is tested
        yield b"1"


def chat_bytes(customer: ApiCustomer, model: str, **fields: Any) -> bytes:
    body = json.dumps(question(model, **fields)).encode()
    return chat_head(customer, len(body)) + body


def chat_head(customer: ApiCustomer, length: int) -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (customer.value.encode(), length)
    )


def only_answer(exchanged: Exchange) -> RawAnswer:
    assert_well_formed(exchanged)
    assert exchanged.is_closed
    [answer] = exchanged.answers
    return answer


# --- slow clients ------------------------------------------------------------------------------------


def says_nothing(port: int, customer: ApiCustomer) -> None:
    with connect(port) as connection:
        assert read_to_the_end(connection) == b""


def drips_a_head(port: int, customer: ApiCustomer) -> None:
    answer = only_answer(exchange(port, dripped(b"GET /healthz HTTP/1.1\r\nX: ")))
    assert answer.status == 408
    assert answer.headers["connection"] == "close"


def stops_within_a_head(port: int, customer: ApiCustomer) -> None:
    assert only_answer(exchange(port, iter([b"GET /healthz HTTP/1.1\r\nX: "]))).status == 408


def drips_a_body(port: int, customer: ApiCustomer) -> None:
    answer = only_answer(exchange(port, dripped(chat_head(customer, 1000))))
    assert answer.status == 400
    assert f"{BODY_SECONDS} seconds" in json.loads(answer.body)["error"]["message"]


def rests_between_two_requests(port: int, customer: ApiCustomer) -> None:
    """Longer than a head may take; then half of the next head."""
    with connect(port) as connection:
        connection.sendall(GET + b"\r\n")
        received = b""
        while b'"ok"}' not in received:
            received += connection.recv(65536)
        time.sleep(3 * HEAD_SECONDS)  # there is no event: the promise is that nothing happens
        connection.sendall(GET + b"\r\n" + GET)
        assert parsed(read_to_the_end(connection)).statuses == [200, 408]


def stops_within_a_body(port: int, customer: ApiCustomer) -> None:
    assert only_answer(exchange(port, iter([chat_head(customer, 1000) + b"{"]))).status == 400


SLOW: list[Callable[[int, ApiCustomer], None]] = [
    says_nothing,
    drips_a_head,
    stops_within_a_head,
    drips_a_body,
    rests_between_two_requests,
    stops_within_a_body,
]


def open_sockets(server: LiveServer) -> int:
    """A client cannot see that the server has given up while there is something that it has not read."""
    files = Path(f"/proc/{server.process.pid}/fd")
    found = 0
    for file in files.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(file).startswith("socket:")
    return found


def never_reads(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    # More than the system buffers for a connection.
    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 17)
    return connection


@pytest.mark.one_database
def test_slow_clients_are_disconnected_by_the_timeout_of_what_is_missing(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    with live_server(process_environment, settings=SHORT_CLOCKS) as server:
        before = open_sockets(server)
        with never_reads(server.port), ThreadPoolExecutor() as pool:
            for ended in [pool.submit(client, server.port, customer) for client in SLOW]:
                ended.result(60)
            until(lambda: open_sockets(server) <= before, 30)
    assert not Reservation.objects.exists()


# --- many clients ------------------------------------------------------------------------------------

BOUND = 5


@pytest.mark.one_database
def test_silent_connections_make_room_and_busy_ones_do_not(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    customer.simulate("paced-100x25")
    stream = chat_bytes(customer, "paced-100x25", stream=True)
    settings = {"GATEWAY_MAX_CONNECTIONS": str(BOUND)}
    with live_server(process_environment, settings=settings) as server, contextlib.ExitStack() as opened:
        silent = [opened.enter_context(connect(server.port)) for _ in range(3 * BOUND)]
        for each in silent[: len(silent) // 2]:
            with contextlib.suppress(OSError):
                each.sendall(b"GET /healthz HTTP/1.1\r\n")

        assert exchange(server.port, iter([NEXT])).statuses == [200]
        busy = [opened.enter_context(connect(server.port)) for _ in range(BOUND)]
        for each in busy:
            each.sendall(stream)
            assert each.recv(1000).startswith(b"HTTP/1.1 200")
        [refused] = exchange(server.port, iter([NEXT])).answers

        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert json.loads(refused.body)["error"]["code"] == "too_many_connections"
        bodies = [read_until_done(each) for each in busy]
        assert all(body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for body in bodies)
        lines = [line for line in server.output if "connections are taken" in line]
        assert len(lines) == 1, lines


def read_until_done(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"0\r\n\r\n") and (data := connection.recv(65536)):
        received += data
    return received


def test_a_soft_limit_of_open_files_is_raised_and_bounds_connections() -> None:
    program = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 1000))\n"
        "from gateway_site.server import connection_table as c\n"
        "before = c.connection_limit(); c.raise_open_files_limit()\n"
        "print(before, r.getrlimit(r.RLIMIT_NOFILE), c.connection_limit())"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "gateway_site.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.split("\n")[0] == "64 (1000, 1000) 436"


# --- clients that are refused, or leave --------------------------------------------------------------


@pytest.mark.one_database
def test_bodies_that_are_refused_and_clients_that_disconnect(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    for model in ("echo", "paced-3000x20"):
        customer.simulate(model)
    with live_server(process_environment) as server:
        for check in (
            check_that_urllib_sees_why_its_body_was_refused,
            check_that_a_malformed_chunk_starts_no_generation,
            check_that_a_client_can_leave_with_requests_waiting,
        ):
            check(server, customer)


def check_that_urllib_sees_why_its_body_was_refused(server: LiveServer, customer: ApiCustomer) -> None:
    """It writes the whole body before it reads: one byte too many, and it must still find the answer."""
    body = b" " * (10 * 1024 * 1024 + 1)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {customer.value}"}
    request = urllib.request.Request(f"{server.address}/v1/chat/completions", body, headers)  # noqa: S310
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310

    with refused.value as answer:
        assert answer.code == 413
        assert json.loads(answer.read())["error"]["code"] == "request_too_large"


def check_that_a_malformed_chunk_starts_no_generation(server: LiveServer, customer: ApiCustomer) -> None:
    body = json.dumps(question("echo")).encode()
    head = chat_head(customer, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunk = b"%x\r\n%s\r\n" % (len(body), body)

    answer = only_answer(exchange(server.port, iter([head + chunk, b"nonsense\r\n", NEXT])))

    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == "malformed_request"
    assert not Reservation.objects.exists()
    assert exchange(server.port, iter([head + chunk + b"0\r\n\r\n" + NEXT])).statuses == [200, 200]


def check_that_a_client_can_leave_with_requests_waiting(server: LiveServer, customer: ApiCustomer) -> None:
    """The stream ends, although it is not the latest request of its connection."""
    with connect(server.port) as connection:
        connection.sendall(chat_bytes(customer, "paced-3000x20", stream=True) + NEXT)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    until(lambda: not Reservation.objects.filter(state="held").exists(), 20)
