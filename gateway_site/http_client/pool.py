"""
The connection pool: keep-alive connections that are idle, by origin. For one event loop.

The one that was idle for the shortest time is taken first: it is the least likely to be closed by the other
side, and those that a burst left behind grow old and go. Age is checked when one is taken, and by one timer
for all.
"""

from __future__ import annotations

import asyncio

from gateway_site.http_client.connection import Origin, UpstreamConnection
from gateway_site.http_client.dialing import Dialer
from gateway_site.http_client.ssrf_guard import Resolver
from gateway_site.http_client.turns import Turns


class ConnectionPool:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, resolver: Resolver, *, keep_alive_seconds: float
    ) -> None:
        self.time = loop.time
        self.turns = Turns(loop)
        self._loop = loop
        self._dialer = Dialer(loop, resolver)
        self._keep_alive_seconds = keep_alive_seconds
        self._idle: dict[Origin, list[UpstreamConnection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take_idle(self, origin: Origin) -> UpstreamConnection | None:
        """Take an open connection that is idle, if there is one. It is the caller's from here on."""
        idle = self._idle.get(origin)
        if idle:
            oldest_allowed = self._loop.time() - self._keep_alive_seconds
            while idle:
                connection = idle.pop()
                if connection.is_open and connection.idle_since > oldest_allowed:
                    return connection
                connection.abort()
        return None

    async def dial(self, origin: Origin, seconds: float) -> UpstreamConnection:
        """Open a new connection within this many seconds; else OSError."""
        return await self._dialer.dial(origin, seconds)

    def give_back(self, connection: UpstreamConnection) -> None:
        """Keep a connection alive if its exchange is over and another may follow, else close it."""
        if self._is_closed or not connection.mark_idle():
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._keep_alive_seconds, self._sweep)

    def close(self) -> None:
        """Close the idle connections. The others are closed by their users when they are given back."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    def _sweep(self) -> None:
        """Close what was idle for longer than the keep-alive timeout."""
        self._sweeper = None
        oldest_allowed = self._loop.time() - self._keep_alive_seconds
        for origin, idle in list(self._idle.items()):
            kept = []
            for connection in idle:
                if connection.is_open and connection.idle_since > oldest_allowed:
                    kept.append(connection)
                else:
                    connection.abort()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._sweeper = self._loop.call_later(self._keep_alive_seconds / 4, self._sweep)
