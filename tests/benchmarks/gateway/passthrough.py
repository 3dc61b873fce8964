"""
The least that a gateway in Python can do, as a reference: raw ASGI and aiohttp, on uvicorn.

It counts, checks and remembers nothing. `UPSTREAM` in the environment is where it sends everything.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

UPSTREAM = os.environ.get("UPSTREAM", "")
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer upstream"}

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

_sessions: list[aiohttp.ClientSession] = []


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    async with _sessions[0].post(UPSTREAM + scope["path"], data=body, headers=HEADERS) as answer:
        kind = answer.headers["Content-Type"].encode()
        head = {"type": "http.response.start", "status": answer.status}
        if kind == b"text/event-stream":
            await send({**head, "headers": [(b"content-type", kind)]})
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            whole = await answer.read()
            length = b"%d" % len(whole)
            await send({**head, "headers": [(b"content-type", kind), (b"content-length", length)]})
            await send({"type": "http.response.body", "body": whole})


async def _live(receive: Receive, send: Send) -> None:
    await receive()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        _sessions.append(session)
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
