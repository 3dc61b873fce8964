"""
Writes activity behind the requests' backs: one thread, many rows to a statement.

It is a record and not the books: what waits here when a process is killed is lost, and when the database
stays away the oldest goes first. The ledger has every request that was admitted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence

from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from psycopg_pool import PoolTimeout

from inference.activity import Trace
from inference.models import Activity

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
MAX_ROWS = 500
# How long rows gather. The console shows a request this much later.
GATHER_SECONDS = 0.5
RETRY_SECONDS = 2.0


class ActivityWriter:
    def __init__(self) -> None:
        # `append` and `popleft` are atomic, and a full one lets the oldest go by itself.
        self._waiting: deque[Trace] = deque(maxlen=MAX_WAITING)
        self._is_wanted = threading.Event()
        self._is_stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0

    def note(self, trace: Trace) -> None:
        """Take a finished trace. Never waits."""
        trace.ended = time.monotonic()
        self._waiting.append(trace)
        if not self._is_wanted.is_set():
            self._is_wanted.set()
        if self._thread is None or self._owner != os.getpid():
            self._start()

    def flush(self) -> None:
        """Write what waits, here and now."""
        with self._writing:
            while self._write_some():
                pass

    def close(self, seconds: float) -> None:
        """Write what waits and end the thread. A later `note` starts another."""
        thread, self._thread = self._thread, None
        self._is_stopped.set()
        self._is_wanted.set()
        if thread is not None and self._owner == os.getpid():
            thread.join(seconds)

    def _start(self) -> None:
        with self._writing:
            if self._thread is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._is_stopped = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._is_stopped,), name="activity", daemon=True
                )
                self._thread.start()

    def _run(self, is_stopped: threading.Event) -> None:
        while not is_stopped.is_set():
            self._is_wanted.wait()
            is_stopped.wait(GATHER_SECONDS)
            self._is_wanted.clear()
            try:
                close_old_connections()
                self.flush()
            except (DatabaseError, InterfaceError, PoolTimeout) as error:
                logger.warning("activity could not be written: %s", type(error).__name__)
                self._is_wanted.set()
                is_stopped.wait(RETRY_SECONDS)
        connection.close()

    def _write_some(self) -> bool:
        traces = [self._waiting.popleft() for _ in range(min(MAX_ROWS, len(self._waiting)))]
        if not traces:
            return False
        try:
            _insert([trace.row() for trace in traces])
        except (DatabaseError, InterfaceError, PoolTimeout):
            self._waiting.extendleft(reversed(traces))
            raise
        return True


def _insert(rows: Sequence[Activity]) -> None:
    # Not bulk_create: it puts the statement together inside the transaction, and on SQLite the ledger waits
    # for that. A row may be there already, if the connection broke after it was committed.
    fields = Activity._meta.local_concrete_fields
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    statement = f"INSERT INTO {Activity._meta.db_table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    values = [
        [field.get_db_prep_save(getattr(row, field.attname), connection) for field in fields] for row in rows
    ]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)


writer = ActivityWriter()
