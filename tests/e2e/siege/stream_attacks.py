"""Attacks by customers with credit: streams that nobody reads, closed tabs, backends that misbehave."""

from __future__ import annotations

import asyncio
import socket
from itertools import cycle

from tests.e2e.siege.raw_http import HOST, READ_BYTES, chat_body, connection, exchange, json_request
from tests.e2e.siege.target import Target

CHAT = "/v1/chat/completions"
FLOOD = "siege/flood"
FAULTS = (
    "reset_midstream",
    "cut_midstream",
    "garbage_head",
    "close_before_headers",
    "json_huge",
    "no_usage",
    "drip_bytes",
    "html",
    "redirect",
    "400_leaky",
)
UNREAD_SECONDS = 8.0
_faults = cycle(FAULTS)


async def flooded_and_unread(target: Target) -> str:
    """Ask for a stream that never ends and read nothing of it."""
    request = json_request(CHAT, target.key, chat_body(FLOOD, stream=True, max_tokens=4_000))
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        raw.setblocking(False)
        await loop.sock_connect(raw, (HOST, target.port))
        await loop.sock_sendall(raw, request)
        await asyncio.sleep(UNREAD_SECONDS)
    return "left"


async def flooded_json(target: Target) -> str:
    request = json_request(CHAT, target.key, chat_body(FLOOD, max_tokens=500))
    return str((await exchange(target.port, request)).status or "closed")


async def closed_tab(target: Target) -> str:
    """Read the beginning of a stream and hang up."""
    request = json_request(CHAT, target.key, chat_body("siege/paced", stream=True))
    async with asyncio.timeout(20), connection(target.port) as (reader, writer):
        writer.write(request)
        await reader.read(READ_BYTES)
        await reader.read(READ_BYTES)
    return "left"


async def misbehaving_backend(target: Target) -> str:
    fault = next(_faults)
    request = json_request(CHAT, target.key, chat_body(f"fault/{fault}", stream=True, max_tokens=20))
    answer = await exchange(target.port, request)
    return str(answer.status or "closed")
