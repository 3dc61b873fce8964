"""
Connections that rest between two exchanges, by origin. For one event loop.

The one that rested least is taken first: it is the least likely to be closed by the other side, and those
that a burst left behind grow old and go. Age is looked at when one is taken, and by one timer for all.
"""

from __future__ import annotations

import asyncio

from gateway_site.http_client.addresses import Resolver
from gateway_site.http_client.connection import Connection, Origin
from gateway_site.http_client.dialing import Dialer
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
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def idle(self, origin: Origin) -> Connection | None:
        """An open connection that waits for work. It is the caller's from here on."""
        resting = self._idle.get(origin)
        if resting:
            youngest_allowed = self._loop.time() - self._keep_alive_seconds
            while resting:
                connection = resting.pop()
                if connection.is_open and connection.idle_since > youngest_allowed:
                    return connection
                connection.abort()
        return None

    async def dial(self, origin: Origin, seconds: float) -> Connection:
        return await self._dialer.dial(origin, seconds)

    def give_back(self, connection: Connection) -> None:
        """Keep it if its exchange is over and another may follow, else cut it."""
        if self._is_closed or not connection.rest():
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._keep_alive_seconds, self._sweep)

    def close(self) -> None:
        """Close those that rest. What is under way ends by itself and is not kept."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for resting in self._idle.values():
            for connection in resting:
                connection.abort()
        self._idle.clear()

    def _sweep(self) -> None:
        self._sweeper = None
        youngest_allowed = self._loop.time() - self._keep_alive_seconds
        for origin, resting in list(self._idle.items()):
            kept = []
            for connection in resting:
                if connection.is_open and connection.idle_since > youngest_allowed:
                    kept.append(connection)
                else:
                    connection.abort()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._sweeper = self._loop.call_later(self._keep_alive_seconds / 4, self._sweep)
