"""
Writes verdicts behind the requests' backs: one thread, many rows to a statement.

It is a record: what waits here when a process is killed is lost, and when the database stays away the oldest
goes first. What was refused was refused all the same.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Protocol

from django.db import DatabaseError, IntegrityError, InterfaceError, close_old_connections, connection
from psycopg_pool import PoolTimeout

from policies.models import Verdict

logger = logging.getLogger(__name__)

MAX_WAITING = 50_000
MAX_ROWS = 500
GATHER_SECONDS = 0.5
RETRY_SECONDS = 2.0


class Noted(Protocol):
    def row(self) -> Verdict: ...


class VerdictWriter:
    def __init__(self) -> None:
        # `append` and `popleft` are atomic, and a full one lets the oldest go by itself.
        self._waiting: deque[Noted] = deque(maxlen=MAX_WAITING)
        self._is_wanted = threading.Event()
        self._is_stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0

    def note(self, verdict: Noted) -> None:
        """Take a verdict. Never waits."""
        self._waiting.append(verdict)
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
                    target=self._run, args=(self._is_stopped,), name="verdicts", daemon=True
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
                logger.warning("verdicts could not be written: %s", type(error).__name__)
                self._is_wanted.set()
                is_stopped.wait(RETRY_SECONDS)
        connection.close()

    def _write_some(self) -> bool:
        notes = [self._waiting.popleft() for _ in range(min(MAX_ROWS, len(self._waiting)))]
        if not notes:
            return False
        rows = [note.row() for note in notes]
        try:
            Verdict.objects.bulk_create(rows)
        except IntegrityError:
            self._write_each(rows)
        except (DatabaseError, InterfaceError, PoolTimeout):
            self._waiting.extendleft(reversed(notes))
            raise
        return True

    def _write_each(self, rows: list[Verdict]) -> None:
        """One of them will never be taken, and all others would wait behind it."""
        for row in rows:
            try:
                row.save(force_insert=True)
            except IntegrityError:
                logger.exception("a verdict was refused by the database and is lost")


writer = VerdictWriter()
