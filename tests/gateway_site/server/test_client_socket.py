"""A client that reads nothing stops whoever writes to it soon, and not after megabytes."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway_site.server.client_socket import MAX_UNSENT_BYTES, bound_unsent_bytes

PIECE = b"x" * 1024
ENOUGH_BYTES = 64 * 1024 * 1024


class Writer(asyncio.Protocol):
    def __init__(self, *, is_bounded: bool) -> None:
        self._is_bounded = is_bounded
        self.is_paused = False
        self.written_bytes = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._is_bounded:
            bound_unsent_bytes(transport)
        while not self.is_paused and self.written_bytes < ENOUGH_BYTES:
            transport.write(PIECE)
            self.written_bytes += len(PIECE)
        transport.abort()
        self.done.set_result(None)

    def pause_writing(self) -> None:
        self.is_paused = True


def written_unread_bytes(*, is_bounded: bool) -> int:
    async def write() -> int:
        loop = asyncio.get_running_loop()
        writer = Writer(is_bounded=is_bounded)
        server = await loop.create_server(lambda: writer, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            await writer.done
        server.close()
        return writer.written_bytes

    return asyncio.run(write())


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such bound")
def test_an_unread_answer_is_kept_in_bounds() -> None:
    bounded = written_unread_bytes(is_bounded=True)

    # Besides what is unsent: what the client's system takes, and what the transport itself keeps.
    assert bounded < 8 * MAX_UNSENT_BYTES
    assert bounded < written_unread_bytes(is_bounded=False) / 2
