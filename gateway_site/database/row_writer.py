"""
Records that are written behind the requests' backs: one thread, many rows to a transaction.

For what is a record and not the books: what waits here when a process is killed is lost, and when the
database stays away the oldest goes first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from psycopg_pool import PoolTimeout

logger = logging.getLogger(__name__)

MAX_ROWS = 500
# How long rows gather. The console shows them this much later.
GATHER_SECONDS = 0.5
RETRY_SECONDS = 2.0


class Noted(Protocol):
    def row(self) -> Any: ...


Note = TypeVar("Note", bound=Noted)


class RowWriter(Generic[Note]):
    """Takes notes from any thread or task and hands their rows to `insert`, in its own thread."""

    def __init__(
        self, name: str, insert: Callable[[Sequence[Any]], None], *, max_waiting: int = 20_000
    ) -> None:
        self._name = name
        self._insert = insert
        # `append` and `popleft` are atomic, and a full one lets the oldest go by itself.
        self._waiting: deque[Note] = deque(maxlen=max_waiting)
        self._is_wanted = threading.Event()
        self._is_stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0

    def note(self, note: Note) -> None:
        """Take one. Never waits."""
        self._waiting.append(note)
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
                thread = threading.Thread(
                    target=self._run, args=(self._is_stopped,), name=self._name, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # short of memory: the next note tries again
                    logger.warning("%s: %s", self._name, error)
                else:
                    self._thread = thread

    def _run(self, is_stopped: threading.Event) -> None:
        is_last = False
        while not is_last:
            self._is_wanted.wait()
            is_stopped.wait(GATHER_SECONDS)
            self._is_wanted.clear()
            # Seen before the writing: what was noted until then is written, however late it came.
            is_last = is_stopped.is_set()
            try:
                close_old_connections()
                self.flush()
            except (DatabaseError, InterfaceError, PoolTimeout) as error:
                logger.warning("%s could not be written: %s", self._name, type(error).__name__)
                self._is_wanted.set()
                is_stopped.wait(RETRY_SECONDS)
        connection.close()

    def _write_some(self) -> bool:
        notes = [self._waiting.popleft() for _ in range(min(MAX_ROWS, len(self._waiting)))]
        if not notes:
            return False
        try:
            self._insert([note.row() for note in notes])
        except (DatabaseError, InterfaceError, PoolTimeout):
            self._waiting.extendleft(reversed(notes))
            raise
        return True
