"""
A TCP proxy that can stop forwarding, as a network that drops packets: sockets stay open, nothing passes.

    with StallingProxy(connect) as proxy:     # `connect` opens a socket to the server behind it
        proxy.stall()                         # new connections are accepted, and nothing is said on them
        proxy.forget()                        # the open ones stall, new ones work
        proxy.refuse()                        # open connections end, new ones are refused
        proxy.forward()                       # all is well again
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.harness.live_server import free_port

CHUNK_BYTES = 65_536


class StallingProxy:
    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.port = free_port()
        self._connect = connect
        self._listener: socket.socket | None = None
        self._peers: dict[socket.socket, socket.socket] = {}
        self._forgotten: list[socket.socket] = []
        self._lock = threading.Lock()
        self._may_forward = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.forward()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(5)
        self.refuse()

    def forward(self) -> None:
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port))
        self._may_forward.set()

    def stall(self) -> None:
        self._may_forward.clear()

    def forget(self) -> None:
        """Nothing passes any more over the connections that are open now. New ones work."""
        with self._lock:
            self._forgotten += self._peers
            self._peers.clear()

    def refuse(self) -> None:
        with self._lock:
            for each in [*self._peers, *self._forgotten]:
                each.close()
            self._peers.clear()
            self._forgotten.clear()
            if self._listener is not None:
                self._listener.close()
            self._listener = None

    def _run(self) -> None:
        while not self._is_over.is_set():
            if not self._may_forward.wait(0.02):
                continue
            with self._lock, selectors.DefaultSelector() as selector:
                for each in [*self._peers, *([self._listener] if self._listener else [])]:
                    selector.register(each, selectors.EVENT_READ)
                for key, _ in selector.select(0.005) if selector.get_map() else []:
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    self._accept() if ready is self._listener else self._pass_on(ready)

    def _accept(self) -> None:
        assert self._listener is not None
        client, server = self._listener.accept()[0], self._connect()
        self._peers |= {client: server, server: client}

    def _pass_on(self, source: socket.socket) -> None:
        target = self._peers.get(source)
        if target is None:  # its other end has just gone
            return
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(CHUNK_BYTES)
            target.sendall(data)
        if not data:
            for each in (source, target):
                self._peers.pop(each, None)
                each.close()
