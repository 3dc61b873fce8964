"""
Raw requests, most of them malformed, and what a server must answer to each.

`test_http_corpus` sends them all to a running server. The long form sends random mutations of them:

    python -m tests.gateway_site.server.http_corpus --mutations 20000 [--seconds 60] [--seed 7]

It starts a server with an empty database of its own and fails if a mutation is answered with a 5xx, with a
refusal outside of the error envelope or without a request id, if the server ends, or if its memory grows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.live_server import ROOT, LiveServer, live_server

READ_SECONDS = 15.0
HOST = b"Host: localhost\r\n"
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
CLOSE = b"Connection: close\r\n\r\n"
# An innocent request. Behind a malformed one it must not be answered.
NEXT = GET + CLOSE
CHUNKED = b"Transfer-Encoding: chunked\r\n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))


@dataclass(frozen=True)
class Case:
    """A request, the statuses of all answers to it, and the pieces in which it is sent."""

    name: str
    sent: bytes
    statuses: list[int]
    piece_bytes: int = 0

    @property
    def pieces(self) -> Iterator[bytes]:
        step = self.piece_bytes or len(self.sent)
        return (self.sent[start : start + step] for start in range(0, len(self.sent), step))


@dataclass
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Exchange:
    """What came back until the server closed the connection, or nothing more came."""

    answers: list[RawAnswer] = field(default_factory=list)
    rest: bytes = b""
    is_closed: bool = False

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]


def refused(name: str, sent: bytes, status: int = 400) -> Case:
    """Answered once, although an innocent request follows: nobody knows where that begins."""
    return Case(name, sent + NEXT, [status])


def chunked(body: bytes, head: bytes = CHAT) -> bytes:
    return head + CHUNKED + b"\r\n" + body


CASES = [
    # --- two readings of where the body ends
    refused("length and chunked", CHAT + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n"),
    refused("chunked and length", CHAT + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n"),
    refused("two lengths", CHAT + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    refused("one length twice", CHAT + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
    refused("list of lengths", CHAT + b"Content-Length: 2, 2\r\n\r\n{}"),
    refused("signed length", CHAT + b"Content-Length: +2\r\n\r\n{}"),
    refused("negative length", CHAT + b"Content-Length: -2\r\n\r\n{}"),
    refused("hexadecimal length", CHAT + b"Content-Length: 0x2\r\n\r\n{}"),
    refused("length beyond 64 bits", CHAT + b"Content-Length: 99999999999999999999999\r\n\r\n{}"),
    refused("empty length", CHAT + b"Content-Length: \r\n\r\n{}"),
    refused("length with a space inside", CHAT + b"Content-Length: 1 2\r\n\r\n{}"),
    Case("space before the colon", CHAT + b"Content-Length : 2\r\n\r\n{}" + NEXT, [400]),
    refused("unknown coding", CHAT + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    refused("chunked is not last", CHAT + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    refused("chunked twice", CHAT + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"\r\n0\r\n\r\n"),
    refused("coding after a tab", CHAT + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    refused("folded coding", CHAT + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    # --- chunks
    refused("chunk size is no number", chunked(b"zz\r\n{}\r\n0\r\n\r\n")),
    refused("negative chunk size", chunked(b"-2\r\n{}\r\n0\r\n\r\n")),
    refused("chunk size with a prefix", chunked(b"0x2\r\n{}\r\n0\r\n\r\n")),
    refused("chunk size beyond 64 bits", chunked(b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n")),
    refused("chunk longer than its size", chunked(b"1\r\n{}\r\n0\r\n\r\n")),
    refused("chunk without its end", chunked(b"2\r\n{}0\r\n\r\n")),
    refused("chunk size ended by LF alone", chunked(b"2\n{}\r\n0\r\n\r\n")),
    refused("chunk ended by LF alone", chunked(b"2\r\n{}\n0\r\n\r\n")),
    refused("second chunk malformed", chunked(b"2\r\n{}\r\n!\r\n\r\n")),
    refused("trailer without a colon", chunked(b"2\r\n{}\r\n0\r\nnonsense\r\n\r\n")),
    refused("endless chunk extension", chunked(b"2;x=" + b"a" * 400_000 + b"\r\n{}\r\n0\r\n\r\n"), 431),
    refused("endless trailer", chunked(b"2\r\n{}\r\n0\r\nX: " + b"a" * 400_000 + b"\r\n\r\n"), 431),
    refused("endless trailers", chunked(b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 80_000 + b"\r\n"), 431),
    Case("trailer", chunked(b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n", GET) + NEXT, [200, 200]),
    Case("chunk extension", chunked(b"2;name=value\r\n{}\r\n0\r\n\r\n", GET) + NEXT, [200, 200]),
    # --- lines and fields
    refused("folded header", GET + b"X: a\r\n b\r\n\r\n"),
    refused("header ended by LF alone", b"GET /healthz HTTP/1.1\nHost: localhost\n\n"),
    refused("header ended by CR alone", b"GET /healthz HTTP/1.1\rHost: localhost\r\r"),
    refused("CR inside a value", GET + b"X: a\rb\r\n\r\n"),
    refused("LF inside a value", GET + b"X: a\nInjected: b\r\n\r\n"),
    refused("NUL inside a value", GET + b"X: a\x00b\r\n\r\n"),
    refused("control character inside a value", GET + b"X: a\x01b\r\n\r\n"),
    refused("space inside a name", GET + b"X Y: a\r\n\r\n"),
    refused("no name", GET + b": a\r\n\r\n"),
    refused("no colon", GET + b"nonsense\r\n\r\n"),
    refused("name that is not ASCII", GET + "Größe: a\r\n\r\n".encode()),
    refused("space before the first header", b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n"),
    refused("host missing", b"GET /healthz HTTP/1.1\r\n" + CLOSE),
    refused("host twice", CHAT + HOST + CLOSE),
    refused("two hosts in one", b"POST /v1/responses HTTP/1.1\r\nHost: localhost, evil.example\r\n" + CLOSE),
    refused("host of somebody else", b"POST /v1/responses HTTP/1.1\r\nHost: evil.example\r\n" + CLOSE),
    # --- the request line
    refused("space in the target", b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("NUL in the target", b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("target that is not ASCII", b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("LF in the target", b"GET /\nX: HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("no target", b"GET HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("method in lower case", b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("unknown method", b"NONSENSE /healthz HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    refused("HTTP/0.9", b"GET /healthz\r\n\r\n"),
    refused("HTTP/0.9 by number", b"GET /healthz HTTP/0.9\r\n" + HOST + b"\r\n"),
    refused("HTTP/1.2", b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n"),
    refused("HTTP/2.0 by number", b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n"),
    refused("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
    refused("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n"),
    refused("TLS on a plain port", TLS_HELLO),
    refused("garbage", bytes(range(256)) * 4),
    # --- too much
    refused("long target", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    refused("endless target", b"GET /" + b"a" * 900_000, 414),
    refused("long header", GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    refused("endless header", GET + b"X: " + b"a" * 900_000, 431),
    refused("endless header name", GET + b"a" * 900_000, 431),
    refused("endless headers", GET + b"X: y\r\n" * 150_000, 431),
    refused("101 headers", GET + b"X: y\r\n" * 100 + b"\r\n", 431),
    refused("blank lines without end", b"\r\n" * 100_000, 431),
    # --- odd, and right
    Case("100 headers", GET + b"X: y\r\n" * 98 + CLOSE, [200]),
    Case("60,000 bytes of header", GET + b"X: " + b"a" * 60_000 + b"\r\n" + CLOSE, [200]),
    Case("blank line first", b"\r\n" + NEXT, [200]),
    Case("absolute target", b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST + CLOSE, [200]),
    Case("HTTP/1.0", b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n", [200]),
    Case("HTTP/1.0 without a host", b"GET /healthz HTTP/1.0\r\n\r\n", [200]),
    Case("two requests at once", GET + b"\r\n" + NEXT, [200, 200]),
    Case("garbage after a request", GET + b"\r\n" + TLS_HELLO, [200, 400]),
    Case("garbage after a last request", NEXT + TLS_HELLO, [200]),
    Case("17 requests at once", (GET + b"\r\n") * 17 + NEXT * 3, [200] * 17),
    Case("10,000 requests at once", (GET + b"\r\n") * 10_000, [200] * 17),
    Case("body of a GET", GET + b"Content-Length: 2\r\n\r\n{}" + NEXT, [200, 200]),
    Case("no key, so that the body is not read", CHAT + b"Content-Length: 2\r\n\r\n{}" + NEXT, [401]),
    Case("offer of HTTP/2", GET + OFFER + b"Content-Length: 2\r\n\r\n{}" + NEXT, [200, 200]),
    Case("another upgrade", GET + b"Connection: Upgrade\r\nUpgrade: nonsense\r\n\r\n" + NEXT, [200, 200]),
    Case("byte by byte", NEXT, [200], piece_bytes=1),
    Case("body byte by byte", GET + b"Content-Length: 2\r\n\r\n{}" + NEXT, [200, 200], piece_bytes=1),
    Case("chunks byte by byte", chunked(b"2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n", GET) + NEXT, [200, 200], 1),
    Case("malformed chunk byte by byte", chunked(b"2\r\n{}\r\nz\r\n"), [400], piece_bytes=1),
    Case("malformed header byte by byte", GET + b"X: a\x00b\r\n\r\n", [400], piece_bytes=1),
]  # fmt: skip


def exchange(port: int, pieces: Iterator[bytes], *, wait_seconds: float = READ_SECONDS) -> Exchange:
    """Send it, as far as the server reads it, and read until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_seconds) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass  # it has stopped reading, and may have said why
        received, is_closed = _read_all(connection)
    exchanged = parsed(received)
    exchanged.is_closed = is_closed
    return exchanged


def _read_all(connection: socket.socket) -> tuple[bytes, bool]:
    received = b""
    while True:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            return received, False
        except ConnectionResetError:
            return received, True
        if not data:
            return received, True
        received += data


def parsed(received: bytes) -> Exchange:
    """The answers in what came back. All of the gateway's own have a length."""
    found = Exchange()
    while match := re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n", received):
        lines = match[2].decode("latin-1").splitlines()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        end = match.end() + int(headers.get("content-length", "0"))
        if int(match[1]) != 100:
            found.answers.append(RawAnswer(int(match[1]), headers, received[match.end() : end]))
        received = received[end:]
    found.rest = received
    return found


def assert_well_formed(exchanged: Exchange) -> None:
    """Every answer has a request id, none is the server's fault, and every refusal is in the envelope."""
    assert not exchanged.rest, exchanged.rest[:200]
    for answer in exchanged.answers:
        identifier = answer.headers.get("x-request-id", "")
        assert str(uuid.UUID(identifier)) == identifier
        assert answer.status < 500, answer
        if answer.status >= 400 and answer.body:
            assert answer.headers["content-type"] == "application/json", answer
            error = json.loads(answer.body)["error"]
            assert error["request_id"] == identifier
            assert error["message"]


# --- the long form -----------------------------------------------------------------------------------


def mutated(chance: random.Random) -> bytes:
    """Some of the corpus, spliced, cut, repeated, with bytes changed; short, so that many can be sent."""
    parts = [case.sent[:4096] for case in chance.choices(CASES, k=chance.randint(1, 3))]
    text = bytearray(
        b"".join(part[: chance.randint(0, len(part))] if chance.random() < 0.3 else part for part in parts)
    )
    for _ in range(chance.randint(0, 6)):
        place = chance.randint(0, len(text))
        match chance.randrange(5):
            case 0:
                text[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del text[place : place + chance.randint(1, 20)]
            case 2:
                text[place:place] = chance.choice(
                    [b"\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\t", b"\r\n\r\n"]
                )
            case 3:
                text[place:place] = text[place : place + chance.randint(1, 50)] * chance.randint(1, 5)
            case _:
                text[place:place] = chance.choice(
                    [CHUNKED, HOST, b"Content-Length: 2\r\n", b"Connection: close\r\n"]
                )
    return bytes(text)


def memory_bytes(process_id: int) -> int:
    """Resident memory of a process and its children."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True
    )
    rows = [[int(number) for number in line.split()] for line in listing.stdout.splitlines()]
    return sum(rss for pid, parent, rss in rows if process_id in (pid, parent)) * 1024


def attack(server: LiveServer, *, mutations: int, seconds: float, seed: int) -> int:
    """Send mutations until they or the time are used up; how many were sent."""
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    warm_bytes = 0
    for count in range(1, mutations + 1):
        sent = mutated(chance)
        step = chance.choice([0, 0, 1 + len(sent) // 7])
        case = Case(f"mutation {count}", sent, [], piece_bytes=step if sent else 1)
        # Half of them are not complete requests: the server is right to wait, and the client leaves.
        assert_well_formed(exchange(server.port, case.pieces, wait_seconds=0.05))
        if count % 500 == 0:
            assert exchange(server.port, iter([NEXT])).statuses == [200]
            assert server.process.poll() is None
            warm_bytes = warm_bytes or memory_bytes(server.process.pid)
        if time.monotonic() > until:
            break
    grown_bytes = memory_bytes(server.process.pid) - warm_bytes if warm_bytes else 0
    assert grown_bytes < 64 * 1024 * 1024, f"the server has grown by {grown_bytes} bytes"
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Send random mutations of malformed requests to a server.")
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            "GATEWAY_DATA_DIR": directory,
            "GATEWAY_FAILED_LOGINS_PER_MINUTE": "1000000",
        }
        environment["DJANGO_SETTINGS_MODULE"] = "gateway_site.settings"
        Path(directory, "static").mkdir()
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=environment, check=True
        )
        with live_server(environment) as server:
            sent = attack(server, mutations=options.mutations, seconds=options.seconds, seed=options.seed)
    sys.stdout.write(f"{sent} mutations: no 5xx, every refusal in the envelope, the server alive\n")


if __name__ == "__main__":
    main()
