"""Answers of a backend that attacks its gateway: raw bytes, by the name of the model that asks for each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.inference.raw_server import Peer

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
OPEN_STREAM = EVENT_STREAM + b"\r\n"  # ends when the connection does
CHUNKED = EVENT_STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
FLOOD_BYTES = 64 * 1024
DRIP_SECONDS = 0.02

Attack = Callable[[Peer], Awaitable[None]]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Offer it under its own name."""
    ATTACKS[function.__name__] = function
    return function


def record(value: Any, event: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()


def chunk(delta: dict[str, Any], **choice: Any) -> bytes:
    return record({"choices": [{"index": 0, "delta": delta, **choice}]})


def word(text: str = " more") -> bytes:
    return chunk({"content": text}, finish_reason=None)


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def closing() -> bytes:
    """The end of a good chat stream."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return chunk({}, finish_reason="stop") + record({"choices": [], "usage": usage}) + record("[DONE]")


async def for_ever(peer: Peer, data: bytes) -> None:
    """As fast as the other side takes it."""
    data *= FLOOD_BYTES // len(data) + 1
    while True:
        await peer.say(data)
        await asyncio.sleep(0)  # `drain` alone does not let others run


async def until_closed(peer: Peer) -> None:
    await peer.reader.read()


# --- Floods ------------------------------------------------------------------------------------------


def spoken(peer: Peer) -> tuple[bytes, bytes]:
    """The opening of a stream and one word of it, in the dialect of the path that was asked."""
    path = peer.head.split(b" ", 2)[1]
    if path.endswith(b"/messages"):
        message = {"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " more"}}
        opening = record({"type": "message_start", "message": message}, "message_start")
        return opening + record(block, "content_block_start"), record(delta, "content_block_delta")
    if path.endswith(b"/responses"):
        item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
        added = {"type": "response.output_item.added", "output_index": 0, "item": item}
        delta = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0}
        delta |= {"content_index": 0, "delta": " more"}
        return record(added, "response.output_item.added"), record(delta, "response.output_text.delta")
    return chunk({"role": "assistant", "content": ""}), word()


@attack
async def flood(peer: Peer) -> None:
    opening, one = spoken(peer)
    await peer.say(OPEN_STREAM + opening)
    await for_ever(peer, one)


@attack
async def flood_in_chunks(peer: Peer) -> None:
    opening, one = spoken(peer)
    await peer.say(CHUNKED + http_chunk(opening))
    await for_ever(peer, http_chunk(one))


@attack
async def good(peer: Peer) -> None:
    """No attack: what a neighbour asks the same server for."""
    await peer.say(CHUNKED + http_chunk(word("Hello")) + http_chunk(closing()) + b"0\r\n\r\n")
