"""
Statements that travel to PostgreSQL together and come back together, over libpq itself.

For the few statements that every request waits for. psycopg's own pipeline sends each by itself and waits for
the socket at each: nine system calls and as many fights for the interpreter's lock to a batch of the ledger,
where this has four. Every answer is one value, JSON or nothing, so there is nothing to convert either.
"""

from __future__ import annotations

import select
import time
from itertools import count
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from gateway_site.database.postgresql.connection import DeadlineConnection

# Of statements that are prepared. Others may prepare theirs on the same connection.
_numbers = count()

CHECK_DEADLINES_MS = 100
_FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_READABLE = select.POLLIN
_BOTH = select.POLLIN | select.POLLOUT


class Reply:
    """What one statement is answered with: the first value of its first row, once it was delivered."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: bytes | None = None


class Pipeline:
    """
    Queue statements, then `deliver` them: if one fails, those after it are not done, and its error is raised.

    With `prepares`, a statement's text is sent once: for a pipeline that lives as long as its connection.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepares = prepares
        self._prepared: dict[str, bytes] = {}
        self._queued: list[tuple[str, tuple[bytes, ...], Reply]] = []

    def queue(self, statement: str, *values: bytes) -> Reply:
        reply = Reply()
        self._queued.append((statement, values, reply))
        return reply

    def forget(self) -> None:
        """Drop whatever was queued and not delivered."""
        self._queued = []

    def deliver(self) -> None:
        """Send what is queued, and wait for all replies."""
        queued, self._queued = self._queued, []
        if isinstance(self._connection, DeadlineConnection):
            self._connection.begin_wait()
        self._pgconn.enter_pipeline_mode()
        fresh = [self._send(statement, values) for statement, values, _ in queued]
        self._pgconn.pipeline_sync()
        self._flush()
        results = [self._answer_to(each[0], name) for each, name in zip(queued, fresh, strict=True)]
        self._next()  # the end of the pipeline
        self._pgconn.exit_pipeline_mode()
        if isinstance(self._connection, DeadlineConnection):
            self._connection.record_answer()
        for (_, _, reply), result in zip(queued, results, strict=True):
            if result.status not in _FINE:
                raise error_from_result(result)
            if result.ntuples:
                reply.value = result.get_value(0, 0)

    # --- there ---------------------------------------------------------------------------------------

    def _send(self, statement: str, values: tuple[bytes, ...]) -> bytes | None:
        """The name that the statement is being given, if it has none yet and is to have one."""
        if not self._prepares or not values:
            self._pgconn.send_query_params(statement.encode(), values)
            return None
        name, fresh = self._prepared.get(statement), None
        if name is None:
            # A new one each time: whether an earlier attempt got through is not known.
            name = fresh = b"gateway_%d" % next(_numbers)
            self._pgconn.send_prepare(name, statement.encode())
        self._pgconn.send_query_prepared(name, values)
        return fresh

    def _flush(self) -> None:
        while self._pgconn.flush():
            if self._wait(_BOTH) & _READABLE:
                self._pgconn.consume_input()

    # --- and back ------------------------------------------------------------------------------------

    def _answer_to(self, statement: str, fresh: bytes | None) -> pq.abc.PGresult:
        """The statement's own result, or that of its preparation if that failed."""
        if fresh is not None:
            preparation = self._result()
            if preparation.status not in _FINE:
                self._result()
                return preparation
            self._prepared[statement] = fresh
        return self._result()

    def _result(self) -> pq.abc.PGresult:
        result = self._next()
        self._pgconn.get_result()  # the end of what this statement has to say
        return result

    def _next(self) -> pq.abc.PGresult:
        while self._pgconn.is_busy():
            self._wait(_READABLE)
            self._pgconn.consume_input()
        result = self._pgconn.get_result()
        if result is None or self._pgconn.status == pq.ConnStatus.BAD:
            raise psycopg.OperationalError("the connection to the database is lost")
        return result

    def _wait(self, events: int) -> int:
        # Outside of the interpreter's lock.
        poll = select.poll()
        poll.register(self._pgconn.socket, events)
        began_at = time.monotonic()
        while not (ready := poll.poll(CHECK_DEADLINES_MS)):
            if isinstance(self._connection, DeadlineConnection):
                self._connection.check_deadlines(began_at)
        return ready[0][1]
