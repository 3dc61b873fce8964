"""HTTP requests over bare sockets, for clients that do what no HTTP library would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
# The attackers' own patience. A server that has not answered by then is counted as silent.
ANSWER_SECONDS = 20.0
READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: bytes

    @property
    def error_code(self) -> str:
        """The code of the error envelope, or nothing where there is none."""
        try:
            return str(json.loads(self.content)["error"]["code"])
        except (ValueError, KeyError, TypeError):
            return ""


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def json_request(path: str, key: str, body: bytes) -> bytes:
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    return head("POST", path, headers) + body


async def exchange(port: int, request: bytes, seconds: float = ANSWER_SECONDS) -> Answer:
    """Send one request and read its answer to the end of the connection."""
    async with asyncio.timeout(seconds), connection(port) as (reader, writer):
        # A server that refuses early does not read the rest.
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The status and whatever follows until the other side closes."""
    content = b""
    with contextlib.suppress(ConnectionResetError):
        while data := await reader.read(READ_BYTES):
            content += data
    status_line, _, rest = content.partition(b"\r\n")
    words = status_line.split()
    if len(words) < 2 or not words[1].isdigit():
        return Answer(0, content)
    return Answer(int(words[1]), rest.partition(b"\r\n\r\n")[2])


def chat_body(model: str, **fields: Any) -> bytes:
    message = {"role": "user", "content": "Say something."}
    return json.dumps({"model": model, "messages": [message], **fields}).encode()
