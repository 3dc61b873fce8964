"""The connections of one worker: how many there may be, and how long each may wait for its client."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from django.conf import settings

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
LOG_SECONDS = 60.0
# Nobody needs more descriptors, and some systems have no hard limit at all.
MAX_OPEN_FILES = 1_048_576
# Descriptors that are not connections of clients or backends: databases, files, libraries, the event loop.
RESERVED_FILES = 128
MAX_CONNECTIONS = 10_000
# Connections beyond the bound that are there only until they have read that they were refused.
MAX_REFUSED = 64
# What a client must read of its response within GATEWAY_SLOW_READER_SECONDS.
MIN_READ_BYTES = 16 * 1024
# Generation has a clock of its own for slow readers. It goes first, and notes the reason.
SLOW_READER_GRACE_SECONDS = 5


class ClientConnection(Protocol):
    """What the table needs to know of a client's connection."""

    transport: Any

    def is_writing_blocked(self) -> bool: ...

    def on_deadline(self) -> None: ...


def raise_open_files_limit() -> None:
    """Let this process and its children have as many open files as the system allows them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit() -> int:
    """The most connections that clients may have to one worker. A request may need one to a backend, too."""
    if settings.GATEWAY_MAX_CONNECTIONS:
        return int(settings.GATEWAY_MAX_CONNECTIONS)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, (soft - RESERVED_FILES) // 2))


class ConnectionTable:
    """
    The open connections of a worker, bounded in number and in idle time.

    `deadlines` has those without a complete request, in the order in which they began to wait, with the time
    at which that ends. One timer checks them once a second: a timer for each connection would cost every
    request more than these two operations on a dictionary.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, every_connection: set[Any]) -> None:
        self._loop = loop
        # Those of WebSockets too, which have clocks of their own and are only counted here.
        self._every_connection = every_connection
        self._connections: set[ClientConnection] = set()
        self._limit = connection_limit()
        self._slow_reader_seconds = settings.GATEWAY_SLOW_READER_SECONDS + SLOW_READER_GRACE_SECONDS
        self.deadlines: dict[ClientConnection, float] = {}
        # Since when a client reads nothing of its response, and how many bytes it had to read then.
        self._stalled: dict[ClientConnection, tuple[float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_log_at = 0.0
        self._closed = self._refused = 0

    def admit(self, connection: ClientConnection) -> bool:
        """Whether a new connection may stay. The one that has waited longest makes room for it."""
        self._connections.add(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)
        if len(self._every_connection) <= self._limit:
            return True
        oldest = next(iter(self.deadlines), None)
        if oldest is None:
            self._refused += 1
        else:
            del self.deadlines[oldest]
            oldest.transport.abort()
            self._closed += 1
        self._log()
        return oldest is not None

    def has_room_for_refusal(self) -> bool:
        """Whether a connection that is refused may stay until it has read so."""
        return len(self._every_connection) <= self._limit + MAX_REFUSED

    def forget(self, connection: ClientConnection) -> None:
        """Remove a connection that was closed, or became a WebSocket."""
        self._connections.discard(connection)
        self.deadlines.pop(connection, None)
        self._stalled.pop(connection, None)

    def clear_stall(self, connection: ClientConnection) -> None:
        """Note that the client has read most of what was written."""
        self._stalled.pop(connection, None)

    def _log(self) -> None:
        now = self._loop.time()
        if now < self._next_log_at:
            return
        self._next_log_at = now + LOG_SECONDS
        logger.warning(
            "all %d connections are taken (GATEWAY_MAX_CONNECTIONS, or `ulimit -Hn`): closed %d that had sent"
            " no complete request, refused %d",
            self._limit,
            self._closed,
            self._refused,
        )
        self._closed = self._refused = 0

    def _check(self) -> None:
        now = self._loop.time()
        for connection in [each for each, until in self.deadlines.items() if until <= now]:
            connection.on_deadline()
        self._stalled = {
            each: self._stall_of(each, now)
            for each in self._connections
            if each.transport.is_closing() or each.is_writing_blocked()
        }
        for connection, (since, _) in self._stalled.items():
            if now - since >= self._slow_reader_seconds:
                connection.transport.abort()
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check) if self._connections else None

    def _stall_of(self, connection: ClientConnection, now: float) -> tuple[float, int]:
        unsent_bytes = connection.transport.get_write_buffer_size()
        since, before_bytes = self._stalled.get(connection, (now, unsent_bytes))
        if before_bytes - unsent_bytes >= MIN_READ_BYTES:
            return now, unsent_bytes
        return since, before_bytes


# By uvicorn's state of a server: a process has one, a test may have several.
_tables: WeakKeyDictionary[Any, ConnectionTable] = WeakKeyDictionary()


def table_of(server_state: Any, loop: asyncio.AbstractEventLoop) -> ConnectionTable:
    table = _tables.get(server_state)
    if table is None:
        table = _tables[server_state] = ConnectionTable(loop, server_state.connections)
    return table
