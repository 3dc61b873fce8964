"""
Records that are written in the background: one thread, many rows to a transaction.

For what is a record and not the books: what is queued here when a process is killed is lost, and when the
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


class RowSource(Protocol):
    """Something that is made into a row when it is written, in the writer's thread."""

    def row(self) -> Any: ...


Source = TypeVar("Source", bound=RowSource)


class RowWriter(Generic[Source]):
    """Takes records from any thread or task and hands their rows to `insert`, in its own thread."""

    def __init__(
        self, name: str, insert: Callable[[Sequence[Any]], None], *, max_queued: int = 20_000
    ) -> None:
        self._name = name
        self.insert = insert
        # `append` and `popleft` are atomic, and a full one lets the oldest go by itself.
        self._queue: deque[Source] = deque(maxlen=max_queued)
        self._has_work = threading.Event()
        self._is_stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0

    def add(self, record: Source) -> None:
        """Queue a record to be written. Never waits."""
        self._queue.append(record)
        if not self._has_work.is_set():
            self._has_work.set()
        if self._thread is None or self._owner != os.getpid():
            self._start()

    @property
    def pending(self) -> list[Source]:
        """Records that wait to be written, the oldest first."""
        return list(self._queue)

    def discard(self) -> None:
        """Drop the records that wait to be written."""
        self._queue.clear()

    def flush(self) -> None:
        """Write what is queued, in the calling thread."""
        with self._writing:
            while self._write_some():
                pass

    def close(self, seconds: float) -> None:
        """Write what is queued and end the thread. A later `add` starts another."""
        thread, self._thread = self._thread, None
        self._is_stopped.set()
        self._has_work.set()
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
                except RuntimeError as error:  # short of memory: the next record tries again
                    logger.warning("%s: %s", self._name, error)
                else:
                    self._thread = thread

    def _run(self, is_stopped: threading.Event) -> None:
        is_last = False
        while not is_last:
            self._has_work.wait()
            is_stopped.wait(GATHER_SECONDS)
            self._has_work.clear()
            # Seen before the writing: what was added until then is written, however late it came.
            is_last = is_stopped.is_set()
            try:
                close_old_connections()
                self.flush()
            except (DatabaseError, InterfaceError, PoolTimeout) as error:
                logger.warning("%s could not be written: %s", self._name, type(error).__name__)
                self._has_work.set()
                is_stopped.wait(RETRY_SECONDS)
        connection.close()

    def _write_some(self) -> bool:
        records = [self._queue.popleft() for _ in range(min(MAX_ROWS, len(self._queue)))]
        if not records:
            return False
        try:
            self.insert([record.row() for record in records])
        except (DatabaseError, InterfaceError, PoolTimeout):
            self._queue.extendleft(reversed(records))
            raise
        return True
