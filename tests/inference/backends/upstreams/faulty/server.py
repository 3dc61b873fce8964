"""
A model server that fails on request, over real sockets.

It speaks chat completions, Responses and Messages. The name of the model says what happens
("reset_midstream"), with options behind a question mark ("ok?tokens=500&delay=0.02"). It keeps its own
ledger: what it emitted for each request, and when the other side closed the connection.

    async with FaultyUpstream() as upstream:      in a test's own loop
    with upstream_in_thread() as upstream:        beside a server or a synchronous test
    python -m tests.inference.backends.upstreams.faulty.server     as a process; GET /_ledger reads the ledger
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from tests.inference.backends.upstreams.faulty.answers import PLAIN, SCRIPTS, Plain, Script
from tests.inference.backends.upstreams.faulty.bodies import ChatSpeech, MessagesSpeech, Speech, record, word
from tests.inference.backends.upstreams.faulty.responses_bodies import ResponsesSpeech

AnySpeech = Speech | ResponsesSpeech


@dataclass
class Exchange:
    """One request as this side saw it."""

    path: str
    model: str
    headers: dict[str, str]
    body: dict[str, Any]
    tokens_emitted: int = 0
    bytes_emitted: int = 0
    is_complete: bool = False
    started_at: float = field(default_factory=time.monotonic)
    closed_at: float | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def as_json(self) -> dict[str, Any]:
        names = ("path", "model", "tokens_emitted", "bytes_emitted", "is_complete", "started_at", "closed_at")
        return {name: getattr(self, name) for name in names}


class Connection(asyncio.StreamReaderProtocol):
    """A server's end of a connection that notes the moment when the other end leaves it."""

    def __init__(self, upstream: FaultyUpstream) -> None:
        self.exchange: Exchange | None = None
        self.upstream = upstream
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        super().__init__(reader, self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The upstream's own end cancels this; asyncio would print that as a crash.
        with contextlib.suppress(asyncio.CancelledError):
            await self.upstream.serve(self, reader, writer)

    def eof_received(self) -> bool | None:
        self._note_close()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_close()
        super().connection_lost(exc)

    def _note_close(self) -> None:
        if self.exchange and self.exchange.closed_at is None:
            self.exchange.closed_at = time.monotonic()
            self.exchange.closed.set()


class FaultyUpstream:
    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self._address = (host, port)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> FaultyUpstream:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), *self._address)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def last(self) -> Exchange:
        return self.exchanges[-1]

    async def serve(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve_one(connection, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        wire = Wire(reader, writer)
        if path == "/_ledger":
            await wire.answer(Plain(200, [exchange.as_json() for exchange in self.exchanges]))
            return True
        model = headers.get("x-fault") or body.get("model") or "ok"
        exchange = connection.exchange = wire.exchange = Exchange(path, model, headers, body)
        self.exchanges.append(exchange)
        is_reusable = await Scene(wire, exchange, method).play()
        exchange.is_complete = is_reusable
        connection.exchange = None
        return is_reusable


class Wire:
    """Raw answers on one connection."""

    exchange: Exchange | None = None

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self, plain: Plain) -> None:
        content = plain.content()
        headers = {**plain.headers, "Content-Length": str(len(content))}
        await self.head(plain.status, headers, plain.media_type)
        self.writer.write(content)
        await self.writer.drain()

    async def head(self, status: int, headers: dict[str, str], media_type: str) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"Content-Type: {media_type}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        await self.writer.drain()

    async def open_stream(self, media_type: str = "text/event-stream") -> None:
        headers = {"Transfer-Encoding": "chunked", "Set-Cookie": "tracker=upstream"}
        await self.head(200, headers, media_type)

    async def send(self, content: bytes) -> None:
        if self.exchange and self.exchange.closed.is_set():
            raise ConnectionResetError  # a server that sees the hang-up stops generating
        self.writer.write(b"%x\r\n%s\r\n" % (len(content), content))
        if self.exchange:
            self.exchange.bytes_emitted += len(content)
        await self.writer.drain()

    async def close_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def reset(self) -> None:
        """RST and not FIN, as a crashed process behind a balancer gives."""
        transport_socket = self.writer.get_extra_info("socket")
        transport_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Scene:
    """Plays the answer that the model's name asks for. True when the connection may be used again."""

    def __init__(self, wire: Wire, exchange: Exchange, method: str) -> None:
        self.wire = wire
        self.exchange = exchange
        self.method = method
        self.name, _, query = exchange.model.partition("?")
        self.options = dict(parse_qsl(query))

    async def play(self) -> bool:
        if self.name in PLAIN:
            await self.wire.answer(PLAIN[self.name].for_request(self.exchange.headers))
            return True
        if self.exchange.path.endswith("/count_tokens"):
            await self.wire.answer(Plain(200, {"input_tokens": 7 * len(self.exchange.body["messages"])}))
            return True
        if self.method == "GET":
            await self.wire.answer(Plain(200, {"object": "list", "data": [{"id": "ok", "object": "model"}]}))
            return True
        if self.name not in SCRIPTS:
            await self.wire.answer(PLAIN["404"])
            return True
        return await self._speak(SCRIPTS[self.name])

    async def _speak(self, script: Script) -> bool:
        make_speech = _speech_at(self.exchange.path)
        speech = make_speech(self.exchange.body, script.usage_of, is_cumulative=script.is_cumulative)
        speech.prompt_tokens = int(self.options.get("prompt", speech.prompt_tokens))
        await asyncio.sleep(float(self.options.get("wait", script.wait)))
        if script.end == "reset_before_headers":
            self.wire.reset()
            return False
        if script.end == "garbage_head":
            self.wire.writer.write(b"220 smtp.example ESMTP\r\n\r\n")
        if script.end == "hang_before_headers":
            await self.exchange.closed.wait()
        if script.end in ("close_before_headers", "garbage_head", "hang_before_headers"):
            return False
        if script.is_whole or not self.exchange.body.get("stream"):
            await self.wire.answer(Plain(200, self._whole(speech, script)))
            return True
        await self.wire.open_stream()
        await self._say(speech, script)
        return await self._end(speech, script)

    def _whole(self, speech: AnySpeech, script: Script) -> dict[str, Any]:
        texts = [word(position) for position in range(self._tokens(script))]
        speech.spoken = len(texts) * speech.choices
        self.exchange.tokens_emitted = speech.spoken
        return speech.whole("".join(texts))

    async def _say(self, speech: AnySpeech, script: Script) -> None:
        delay = float(self.options.get("delay", script.delay))
        if script.opens:
            for opening in speech.opening():
                await self.wire.send(opening)
        for position in range(self._tokens(script)):
            for index in range(speech.choices):
                if delay:
                    await asyncio.sleep(delay)
                # Counted before it is written: what was generated is owed, read or not.
                if not self.exchange.closed.is_set():
                    self.exchange.tokens_emitted += 1
                text = self.options.get("word") or word(position)
                await self._send_cut(speech.token(text, script.kind, index), script)
        for position, fragment in script.tools:
            self.exchange.tokens_emitted += 1
            await self.wire.send(speech.tool(position, fragment))

    async def _send_cut(self, content: bytes, script: Script) -> None:
        if not script.drips:
            await self.wire.send(content)
            return
        for position in range(len(content)):
            await self.wire.send(content[position : position + 1])
            await asyncio.sleep(0)

    def _tokens(self, script: Script) -> int:
        return int(self.options.get("tokens", script.tokens))

    async def _end(self, speech: AnySpeech, script: Script) -> bool:
        if script.end in ("reset", "cut", "hang"):
            await self._break_off(script)
            return False
        match script.end:
            case "raw":
                await self.wire.send(script.raw)
            case "huge_line":
                for _ in range(64):
                    await self.wire.send(b"x" * 65536)
            case "endless":
                await self._babble(speech)
            case "error":
                await self.wire.send(speech.error("CUDA error: backend exploded at http://10.0.0.7/internal"))
            case "finish":
                await self._finish(speech, script)
        await asyncio.sleep(float(self.options.get("late_end", 0)))
        await self.wire.close_stream()
        return True

    async def _break_off(self, script: Script) -> None:
        if script.end == "reset":
            self.wire.reset()
        elif script.end == "hang":
            await self.exchange.closed.wait()

    async def _babble(self, speech: AnySpeech) -> None:
        while True:
            self.exchange.tokens_emitted += 1
            await self.wire.send(speech.token(" more"))
            await asyncio.sleep(0)  # `drain` alone does not let others run

    async def _finish(self, speech: AnySpeech, script: Script) -> None:
        if script.finish:
            for finish in speech.finish(script.finish):
                await self.wire.send(finish)
        for count in script.usage_counts:
            await self.wire.send(speech.usage(count))
        if script.closes:
            await self.wire.send(speech.done())


def _speech_at(path: str) -> type[AnySpeech]:
    if path.endswith("/messages"):
        return MessagesSpeech
    return ResponsesSpeech if path.endswith("/responses") else ChatSpeech


@contextlib.contextmanager
def upstream_in_thread(port: int = 0) -> Iterator[FaultyUpstream]:
    """The same server on a loop of its own, for tests that have none."""
    upstream = FaultyUpstream(port)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.__aenter__(), loop).result(10)
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(upstream.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def wait_until_closed(exchange: Exchange, seconds: float = 1.0) -> float:
    """How long after now the other side closed; TimeoutError if it does not in time."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        await exchange.closed.wait()
    return max(0.0, (exchange.closed_at or 0.0) - started)


async def _serve_forever(port: int) -> None:
    async with FaultyUpstream(port) as upstream:
        print(upstream.url, flush=True)  # noqa: T201 - the address is this command's output
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model server that fails on request.")
    parser.add_argument("--port", type=int, default=0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_forever(parser.parse_args().port))

__all__ = ["Exchange", "FaultyUpstream", "record", "upstream_in_thread", "wait_until_closed"]
