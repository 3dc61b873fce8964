"""A psycopg connection whose every wait has a clock of the client."""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import pq
from psycopg_pool import ConnectionPool

from gateway_site.database.postgresql import deadlines
from gateway_site.database.postgresql.circuit_breaker import ServerAway, ServerWatch, watch_of

_READABLE = 1  # psycopg's Ready.R
# An idle connection is tried before it is given out again.
PING_AFTER_SECONDS = 1.0
PING_SECONDS = 1.0


class ClockedConnection(psycopg.Connection[Any]):
    """
    Ends its own wait, and itself, when the server is silent or the thread's deadline is over.

    psycopg drives each operation by a generator, which it resumes ten times a second while the socket says
    nothing. Around that generator is one that looks at the clock. A connection that gave up waiting is
    closed: what its server may still say belongs to nobody.
    """

    watch: ServerWatch
    outages: int
    heard_at: float

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> ClockedConnection:
        watch = watch_of(parameters)
        watch.require_answering()
        outages = watch.outages
        try:
            made = super().connect(conninfo, **parameters)
        except psycopg.OperationalError as error:
            watch.note_failed_connect(error)
            raise
        made.watch, made.outages = watch, outages
        made.heard()
        return made

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(self._clocked(gen), *args, **options)

    def is_fresh(self) -> bool:
        """Whether an idle connection may be used: made since the last outage, and nothing came over it."""
        if self.closed or self.outages != self.watch.outages or self.heard_at < self.watch.distrusted_at:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        # What comes unasked is the server's farewell, or the end of the connection.
        if poll.poll(0):
            return False
        return time.monotonic() - self.heard_at < PING_AFTER_SECONDS or self._is_answered()

    def _is_answered(self) -> bool:
        """One empty statement: a network may have forgotten the connection while the server lives."""
        try:
            with deadlines.deadline(PING_SECONDS):
                ConnectionPool.check_connection(self)
        except psycopg.Error:
            self.watch.distrust_idle_connections()
            return False
        return True

    def heard(self) -> None:
        """The server has answered, over this connection."""
        self.heard_at = time.monotonic()
        self.watch.heard()

    def begin_wait(self) -> float:
        """When the wait begins, which must be worth beginning: raises ServerAway where it is not."""
        if self.watch.is_away:
            self.give_up("the database server does not answer")
        is_idle = self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and self.outages != self.watch.outages:
            self.give_up("the connection is older than the database server's last outage")
        return time.monotonic()

    def look_at_clock(self, began_at: float) -> None:
        """Raises ServerAway once there is nothing left to wait for."""
        now = time.monotonic()
        until = deadlines.ends_at()
        if until is not None and now > until:
            self.give_up("the database did not answer before the deadline")
        waited = now - began_at
        if waited > deadlines.statement_limit.seconds:
            self.give_up("the database did not answer within the limit of one statement")
        if self.watch.is_away or (waited > self.watch.silence_seconds and self.watch.is_silent()):
            self.give_up("the database server does not answer")

    def give_up(self, reason: str) -> None:
        # Not `close`, which a pool may take for a return.
        self._closed = True
        self.pgconn.finish()
        raise ServerAway(reason)

    def _clocked(self, gen: Any) -> Generator[Any, Any, Any]:
        has_heard = False
        began_at = self.begin_wait()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready:
                    self.look_at_clock(began_at)
                elif ready & _READABLE:
                    has_heard = True
                state = gen.send(ready or 0)
        except StopIteration as done:
            if has_heard:
                self.heard()
            return done.value
