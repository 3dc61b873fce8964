"""A server over real sockets that answers with whatever bytes a test says, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

Answering = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The server's end of one connection. `requests` counts what came; `head` and `body` are the last."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests = 0
        self.head = b""
        self.body = b""

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def next_request(self) -> bool:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self.head, self.body = head, await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.requests += 1
        return True


async def always_whole(peer: Peer) -> None:
    while await peer.next_request():
        await peer.say(WHOLE)


class RawServer:
    """`answering` runs once for each connection; when it returns, the connection is closed."""

    def __init__(
        self,
        answering: Answering = always_whole,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._answering = answering
        self._host = host
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()
        self.peers: list[Peer] = []
        self.left = asyncio.Event()

    @property
    def requests(self) -> list[int]:
        return [peer.requests for peer in self.peers]

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        scheme = "https" if self._tls else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{scheme}://{host}:{self.port}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        # The server's own end cancels this; asyncio would print that as a crash.
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._answering(peer)
        self._tasks.discard(task)
        writer.close()
        self.left.set()
