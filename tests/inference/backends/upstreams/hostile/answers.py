"""Answers of a backend that attacks its gateway: raw bytes, by the name of the model that asks for each."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from tests.gateway_site.http_client.raw_server import Peer

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


# --- Before the body ---------------------------------------------------------------------------------


def raw(name: str, *pieces: bytes, endless: bytes = b"", hangs: bool = False) -> None:
    """An attack that says these bytes, perhaps the last for ever, and closes or waits."""

    async def say(peer: Peer) -> None:
        for piece in pieces:
            await peer.say(piece)
        if endless:
            await for_ever(peer, endless)
        if hangs:
            await until_closed(peer)

    ATTACKS[name] = say


def framed(name: str, *fields: bytes, body: bytes = b"") -> None:
    """An attack with these fields in a head that is good otherwise, and a good stream unless told."""
    body = body or word("Hello") + closing()
    raw(name, EVENT_STREAM + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body)


raw("status_line_without_end", b"HTTP/1.1 200 ", endless=b"O")
raw("field_without_end", b"HTTP/1.1 200 OK\r\nX: ", endless=b"x")
raw("field_name_without_end", b"HTTP/1.1 200 OK\r\n", endless=b"x")
raw("fields_without_end", b"HTTP/1.1 200 OK\r\n", endless=b"a: b\r\n")
raw("a_field_of_a_megabyte", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20 + b"\r\n\r\n" + word() + closing())
raw("continue_for_ever", endless=b"HTTP/1.1 100 Continue\r\n\r\n")
raw("early_hints_for_ever", endless=b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
raw("switching_protocols", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + word(), hangs=True)
raw("tls_alert", b"\x15\x03\x01\x00\x02\x02\x28")
raw("nothing_but_line_ends", endless=b"\r\n")
raw("http_0_9", b"<html>hello</html>")
raw("http_2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

framed("length_huge", b"Content-Length: 99999999999999999999999999")
framed("length_negative", b"Content-Length: -1")
framed("length_twice", b"Content-Length: 5", b"Content-Length: 500")
framed("length_beside_chunks", b"Content-Length: 5", b"Transfer-Encoding: chunked")
framed("length_too_long", b"Content-Length: 100000")
framed("length_too_short", b"Content-Length: 10")
framed("coding_unknown", b"Transfer-Encoding: gzip, chunked")
framed("gzip_coding", b"Content-Encoding: gzip", body=gzip.compress(word("Hello") + closing()))
framed("gzip_bomb", b"Content-Encoding: gzip", body=gzip.compress(bytes(2**26)))
framed("field_with_nul", b"X: a\0b")

raw("chunk_size_wrong", CHUNKED + b"5\r\n" + word() + b"\r\n")
raw("chunk_size_huge", CHUNKED + b"f" * 40 + b"\r\n" + word())
raw("chunk_size_negative", CHUNKED + b"-5\r\n" + word())
raw("chunk_size_without_end", CHUNKED, endless=b"0")
raw("chunk_extension_without_end", CHUNKED + b"5;x=", endless=b"x")
raw("trailers_without_end", CHUNKED + http_chunk(word()) + b"0\r\n", endless=b"a: b\r\n")
raw("redirect", b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
raw("refusal_without_end", b"HTTP/1.1 400 Bad Request\r\n\r\n{", endless=b" ")
raw("error_of_ten_megabytes", b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 10_000_000)


# --- Streams -----------------------------------------------------------------------------------------


def streamed(name: str, *pieces: bytes, endless: bytes = b"", hangs: bool = False) -> None:
    raw(name, OPEN_STREAM, *pieces, endless=endless, hangs=hangs)


def said(name: str, value: Any) -> None:
    """An attack by one record in a stream that is good otherwise."""
    streamed(name, word("Hello"), record(value), closing())


streamed("record_without_end", b"data: ", endless=b"x")
streamed("record_of_ten_megabytes", word("Hello"), b'data: {"a":"' + b"x" * 10_000_000 + b'"}\n\n', closing())
streamed("comments_for_ever", endless=b": ping\n\n")
streamed("blank_lines_for_ever", endless=b"\n")
streamed("names_for_ever", endless=b"event: ping\n")
streamed("empty_records_for_ever", endless=record({}))
streamed("empty_deltas_for_ever", endless=chunk({}))
streamed(
    "usage_for_ever", endless=record({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
)
streamed("not_utf8", word("Hello"), b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n', closing())
streamed("nul_bytes", word("Hello"), bytes(5000), closing())
streamed("closed_in_a_record", word("Hello"), word()[:20])
streamed("words_after_done", word("Hello"), closing(), endless=word("STOLEN"))
streamed("done_at_once", record("[DONE]"))
streamed("done_for_ever", word("Hello"), closing(), endless=record("[DONE]"))
streamed("finishes_for_ever", word("Hello"), endless=chunk({}, finish_reason="stop"))
streamed("silence_after_words", word("Hello"), hangs=True)

said("nul_in_a_text", {"choices": [{"index": 0, "delta": {"content": "a\0b"}}]})
said("lone_surrogate", '{"choices":[{"index":0,"delta":{"content":"\\ud800"}}]}')
said("a_million_choices", '{"choices":[' + ",".join(["{}"] * 340_000) + "]}")
said("choices_of_one", {"choices": [{"index": 0, "delta": {"content": "x"}}] * 5000})
said("index_negative", {"choices": [{"index": -1, "delta": {"content": "x"}}]})
said("index_huge", {"choices": [{"index": 10**9, "delta": {"content": "x"}}]})
said("index_beyond_integers", {"choices": [{"index": 10**30, "delta": {"content": "x"}}]})
said("nested_arrays", '{"usage":' + "[" * 100_000 + "]" * 100_000 + "}")
said("nested_objects", '{"a":' * 50_000 + "1" + "}" * 50_000)
said("many_arrays", '{"usage":[' + ",".join(["[]"] * 340_000) + "]}")
said("usage_huge", {"choices": [], "usage": {"prompt_tokens": 10**300, "completion_tokens": 10**300}})
said(
    "usage_of_digits", '{"choices":[],"usage":{"prompt_tokens":' + "9" * 500_000 + ',"completion_tokens":1}}'
)
said("number_of_digits", '{"choices":[],"usage":' + "9" * 900_000 + "}")
said("exponent_huge", '{"choices":[],"usage":{"prompt_tokens":1e400,"completion_tokens":1}}')
said("name_of_a_megabyte", {"x" * 900_000: 1})


def _calls(*fragments: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(fragments)}}]}


_FUNCTION = {"name": "f", "arguments": "{}"}
said("call_index_huge", _calls({"index": 10**9, "id": "a", "function": _FUNCTION}))
said("call_index_negative", _calls({"index": -5, "id": "a", "function": _FUNCTION}))
said(
    "calls_without_end", _calls(*({"index": n, "id": f"c{n}", "function": _FUNCTION} for n in range(12_000)))
)
said("fragments_of_one_call", _calls(*[{"index": 0, "id": "a", "function": _FUNCTION}] * 12_000))
streamed(
    "fragments_of_the_first_of_many_calls",
    *(record(_calls({"index": n, "id": f"c{n}", "function": _FUNCTION})) for n in range(100)),
    endless=record(_calls(*[{"index": 0}] * 500)),
)

_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
raw("whole_without_end", _JSON + b'{"choices":[', endless=b" ")
raw("whole_of_choices", _JSON + b'{"choices":[' + b",".join([b"{}"] * 1_300_000) + b"]}")
raw(
    "whole_of_calls",
    _JSON + json.dumps(_calls(*[{"index": 0, "id": "a", "function": _FUNCTION}] * 60_000)).encode(),
)
raw("whole_nested", _JSON + b'{"usage":' + b"[" * 1_000_000)


@attack
async def drip(peer: Peer) -> None:
    """A good answer, a byte at a time, and slowly."""
    for byte in OPEN_STREAM + word("Hello") + closing():
        await peer.say(bytes([byte]))
        await asyncio.sleep(0.001)


@attack
async def drip_for_ever(peer: Peer) -> None:
    await peer.say(OPEN_STREAM)
    while True:
        await peer.say(b":")
        await asyncio.sleep(DRIP_SECONDS)


@attack
async def head_drip_for_ever(peer: Peer) -> None:
    await peer.say(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        await peer.say(b"x")
        await asyncio.sleep(DRIP_SECONDS)


@attack
async def reset_after_words(peer: Peer) -> None:
    await peer.say(OPEN_STREAM + word("Hello"))
    raw_socket: socket.socket = peer.writer.get_extra_info("socket")
    raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()


@attack
async def answers_twice(peer: Peer) -> None:
    """The second answer would be that of the next request on this connection."""
    whole = CHUNKED + http_chunk(word("Hello")) + http_chunk(closing()) + b"0\r\n\r\n"
    await peer.say(whole + whole.replace(b"Hello", b"STOLEN"))
    await until_closed(peer)


@attack
async def answers_again_later(peer: Peer) -> None:
    whole = CHUNKED + http_chunk(word("Hello")) + http_chunk(closing()) + b"0\r\n\r\n"
    await peer.say(whole)
    await asyncio.sleep(0.05)
    await peer.say(whole.replace(b"Hello", b"STOLEN"))
    await until_closed(peer)
