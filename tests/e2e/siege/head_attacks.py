"""Attacks that need no key: request heads, slow senders, clients that do not read."""

from __future__ import annotations

import asyncio
import secrets
from itertools import count

from tests.e2e.siege.raw_http import ANSWER_SECONDS, connection, exchange, head, read_answer
from tests.e2e.siege.target import Target

CHUNK_BYTES = 65_536
# One attempt ends here, whether or not the server put an end to it before.
ENDLESS_BYTES = 80 * 1024 * 1024
PATIENCE_SECONDS = 60.0
PIPELINED = 500

MALFORMED = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\r\n\r\n\r\nGARBAGE\r\n\r\n",
)
_turn = count()


async def _send_without_end(target: Target, start: bytes, piece: bytes) -> str:
    """Send until the server closes or answers; how much it took."""
    sent = 0
    async with asyncio.timeout(PATIENCE_SECONDS), connection(target.port) as (reader, writer):
        answer = asyncio.create_task(read_answer(reader))
        try:
            writer.write(start)
            while sent < ENDLESS_BYTES and not answer.done():
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
        except ConnectionError:
            return "closed"
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
        return "closed" if sent < ENDLESS_BYTES else f"took {ENDLESS_BYTES >> 20} MiB"


async def endless_header_value(target: Target) -> str:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
    return await _send_without_end(target, start, b"a" * CHUNK_BYTES)


async def endless_header_fields(target: Target) -> str:
    piece = b"".join(b"X-%d: a\r\n" % number for number in range(6_000))
    return await _send_without_end(target, b"GET /healthz HTTP/1.1\r\nHost: x\r\n", piece)


async def endless_request_line(target: Target) -> str:
    return await _send_without_end(target, b"GET /", b"a" * CHUNK_BYTES)


async def silent_connection(target: Target) -> str:
    async with connection(target.port) as (reader, _):
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await reader.read()
        except TimeoutError:
            return "kept open"
    return "closed"


async def _drip(target: Target, start: bytes) -> str:
    """Send one byte a second until the server closes or answers."""
    async with connection(target.port) as (reader, writer):
        answer = asyncio.create_task(read_answer(reader))
        try:
            writer.write(start)
            for _ in range(int(PATIENCE_SECONDS)):
                done, _pending = await asyncio.wait({answer}, timeout=1.0)
                if done:
                    return str(answer.result().status or "closed")
                writer.write(b"a")
                await writer.drain()
        finally:
            answer.cancel()
    return "kept open"


async def dripping_head(target: Target) -> str:
    return await _drip(target, b"GET /healthz HTTP/1.1\r\nX: ")


async def dripping_body(target: Target) -> str:
    headers = {"Authorization": f"Bearer {target.key}", "Content-Type": "application/json"}
    start = head("POST", "/v1/chat/completions", {**headers, "Content-Length": "100000"})
    return await _drip(target, start)


async def pipelined_and_unread(target: Target) -> str:
    """Ask for many answers on one connection and read none."""
    request = head("GET", "/openapi.json", {})
    async with asyncio.timeout(PATIENCE_SECONDS), connection(target.port) as (reader, writer):
        # The receive buffer is kept from filling into the process.
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        try:
            writer.write(request * PIPELINED)
            await asyncio.wait_for(writer.drain(), ANSWER_SECONDS)
            await asyncio.sleep(2)
        except (ConnectionError, TimeoutError):
            return "closed"
    return "unread"


async def malformed(target: Target) -> str:
    answer = await exchange(target.port, MALFORMED[next(_turn) % len(MALFORMED)])
    return str(answer.status or "closed")


async def wrong_key(target: Target) -> str:
    headers = {"Authorization": f"Bearer gwk_{secrets.token_urlsafe(32)}", "Connection": "close"}
    return str((await exchange(target.port, head("GET", "/v1/models/x", headers))).status)


async def foreign_host(target: Target) -> str:
    request = head("POST", "/v1/chat/completions", {"Content-Length": "0", "Connection": "close"})
    answer = await exchange(target.port, request.replace(b"127.0.0.1", b"evil.example", 1))
    return str(answer.status)


async def readiness(target: Target) -> str:
    return str((await exchange(target.port, head("GET", "/readyz", {"Connection": "close"}))).status)
