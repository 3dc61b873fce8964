"""
The server behind every gateway that is measured: chat completions, as fast as one Python process can.

    python -m tests.benchmarks.gateway.upstream --port 9100

How long an answer is, and how fast a stream of it comes, is in the name of the model: `mock-t100-r50` says a
hundred words, fifty a second, and `mock-t200-r0` says two hundred at once. An answer that is not a stream
always comes at once. All bytes are made once for each model, and a request is searched and not parsed:
otherwise this would be a part of what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import uvloop

# What every word of an answer begins with. Counted by the client, however records were cut on their way.
# The words differ, because some gateways end a stream that repeats itself.
MARK = "lorem"
WORDS = tuple(f"{MARK}{number} " for number in range(10))
PROMPT_TOKENS = 24
CREATED = 1_700_000_000

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model": ?"mock-t(\d+)-r(\d+)"')
_STREAM = re.compile(rb'"stream": ?true')
_WITH_USAGE = re.compile(rb'"include_usage": ?true')

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_END_OF_BODY = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that may be sent for one model, ready for the socket."""

    whole: bytes
    first: bytes  # of a stream: the head and the record that names the role
    records: tuple[bytes, ...]  # one for each word
    seconds_between: float
    # What ends a stream, without and with the record of usage.
    ends: tuple[bytes, bytes]

    def at_once(self, with_usage: bool) -> bytes:
        return self.first + b"".join(self.records) + self.ends[with_usage]


@lru_cache(maxsize=64)
def answer_for(words: int, a_second: int) -> Answer:
    model = f"mock-t{words}-r{a_second}"
    usage = {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": words,
        "total_tokens": PROMPT_TOKENS + words,
    }
    said = [WORDS[number % len(WORDS)] for number in range(words)]
    message = {"role": "assistant", "content": "".join(said)}
    whole = _head_of(model, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
    last = _record(model, [_choice({}, "stop")])
    done = _http_chunk(b"data: [DONE]\n\n") + _END_OF_BODY
    return Answer(
        whole=_json_response(whole),
        first=_STREAM_HEAD + _record(model, [_choice({"role": "assistant", "content": ""})]),
        records=tuple(_record(model, [_choice({"content": word})]) for word in said),
        seconds_between=1 / a_second if a_second else 0.0,
        ends=(last + done, last + _record(model, [], usage) + done),
    )


def _head_of(model: str, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-mock", "object": kind, "created": CREATED, "model": model}


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _record(model: str, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
    chunk = _head_of(model, "chat.completion.chunk") | {"choices": choices}
    if usage is not None:
        chunk["usage"] = usage
    return _http_chunk(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _json_response(body: dict[str, Any]) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(data),
        data,
    )


MODELS = _json_response({"object": "list", "data": []})


class Upstream(asyncio.Protocol):
    """One connection: a request at a time, as clients of HTTP/1.1 send them."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._unread = b""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at == 3:
            self._unread = data
            return
        length = _LENGTH.search(data, 0, body_at)
        if length is not None and len(data) - body_at < int(length[1]):
            self._unread = data
            return
        self._unread = b""
        self._answer(data, body_at)

    def _answer(self, request: bytes, body_at: int) -> None:
        named = _MODEL.search(request, body_at)
        if named is None:
            self.transport.write(MODELS)
            return
        answer = answer_for(int(named[1]), int(named[2]))
        if not _STREAM.search(request, body_at):
            self.transport.write(answer.whole)
            return
        with_usage = _WITH_USAGE.search(request, body_at) is not None
        if not answer.seconds_between:
            self.transport.write(answer.at_once(with_usage))
            return
        self.transport.write(answer.first)
        self._say(answer, 0, self._loop.time(), with_usage)

    def _say(self, answer: Answer, said: int, started: float, with_usage: bool) -> None:
        # Whoever is late catches up, so that the rate offered is the one in the name.
        due = max(int((self._loop.time() - started) / answer.seconds_between), said) + 1
        words = b"".join(answer.records[said:due])
        if due < len(answer.records):
            self.transport.write(words)
            at = started + due * answer.seconds_between
            self._timer = self._loop.call_at(at, self._say, answer, due, started, with_usage)
        else:
            self.transport.write(words + answer.ends[with_usage])


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
