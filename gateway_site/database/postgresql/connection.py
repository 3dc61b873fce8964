"""A psycopg connection whose every wait has a deadline on the client's side."""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import pq
from psycopg_pool import ConnectionPool

from gateway_site.database.postgresql import deadlines
from gateway_site.database.postgresql.circuit_breaker import (
    DatabaseCircuitBreaker,
    DatabaseUnavailable,
    circuit_breaker_for,
)

_READABLE = 1  # psycopg's Ready.R
# An idle connection is tried before it is given out again.
PING_AFTER_SECONDS = 1.0
PING_SECONDS = 1.0


class DeadlineConnection(psycopg.Connection[Any]):
    """
    Ends its own wait, and itself, when the server is silent or the thread's deadline is over.

    psycopg drives each operation by a generator, which it resumes ten times a second while the socket says
    nothing. Around that generator is one that checks the deadlines. A connection that gave up waiting is
    closed: what its server may still say belongs to nobody.
    """

    breaker: DatabaseCircuitBreaker
    outages: int
    answered_at: float

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> DeadlineConnection:
        breaker = circuit_breaker_for(parameters)
        breaker.require_closed()
        outages = breaker.outages
        try:
            made = super().connect(conninfo, **parameters)
        except psycopg.OperationalError as error:
            breaker.record_failed_connect(error)
            raise
        made.breaker, made.outages = breaker, outages
        made.record_answer()
        return made

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(self._with_deadlines(gen), *args, **options)

    def is_fresh(self) -> bool:
        """Whether an idle connection may be used: made since the last outage, and nothing came over it."""
        if (
            self.closed
            or self.outages != self.breaker.outages
            or self.answered_at < self.breaker.distrusted_at
        ):
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        # What comes unasked is the server's farewell, or the end of the connection.
        if poll.poll(0):
            return False
        return time.monotonic() - self.answered_at < PING_AFTER_SECONDS or self._is_answered()

    def _is_answered(self) -> bool:
        """Ping the server: a network may have forgotten the connection while the server lives."""
        try:
            with deadlines.deadline(PING_SECONDS):
                ConnectionPool.check_connection(self)
        except psycopg.Error:
            self.breaker.distrust_idle_connections()
            return False
        return True

    def record_answer(self) -> None:
        """Remember that the server has answered over this connection."""
        self.answered_at = time.monotonic()
        self.breaker.record_answer()

    def begin_wait(self) -> float:
        """The time at which a wait begins. Raises DatabaseUnavailable where waiting is of no use."""
        if self.breaker.is_open:
            self.give_up("the database server does not answer")
        is_idle = self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and self.outages != self.breaker.outages:
            self.give_up("the connection is older than the database server's last outage")
        return time.monotonic()

    def check_deadlines(self, began_at: float) -> None:
        """Raises DatabaseUnavailable once there is nothing left to wait for."""
        now = time.monotonic()
        until = deadlines.ends_at()
        if until is not None and now > until:
            self.give_up("the database did not answer before the deadline")
        waited = now - began_at
        if waited > deadlines.statement_limit.seconds:
            self.give_up("the database did not answer within the limit of one statement")
        if self.breaker.is_open or (waited > self.breaker.silence_seconds and self.breaker.is_unresponsive()):
            self.give_up("the database server does not answer")

    def give_up(self, reason: str) -> None:
        # Not `close`, which a pool may take for a return.
        self._closed = True
        self.pgconn.finish()
        raise DatabaseUnavailable(reason)

    def _with_deadlines(self, gen: Any) -> Generator[Any, Any, Any]:
        was_answered = False
        began_at = self.begin_wait()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready:
                    self.check_deadlines(began_at)
                elif ready & _READABLE:
                    was_answered = True
                state = gen.send(ready or 0)
        except StopIteration as done:
            if was_answered:
                self.record_answer()
            return done.value
