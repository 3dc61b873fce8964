"""
One thread for work that many wait for: what is submitted while it processes a batch is the next batch.

There is no artificial delay: a single item pays for one round trip to the database, and a thousand share one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakSet

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchThread(Generic[Item]):
    """
    Calls `process` with batches of what was submitted, and `close` before the thread ends, all in its thread.

    The first `submit` starts the thread, and so does the first one after a `stop`, after an exception out of
    `process`, or in a forked child, which begins with nothing queued.
    """

    def __init__(
        self,
        name: str,
        process: Callable[[list[Item]], None],
        *,
        close: Callable[[], None],
        max_batch: float = math.inf,
    ) -> None:
        self._name = name
        self._process = process
        self._close = close
        self._max_batch = max_batch
        self._reset()
        _instances.add(self)

    def _reset(self) -> None:
        # None only wakes the thread up.
        self._inbox: SimpleQueue[Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stop_by: float | None = None
        self._backlog: list[Item] = []
        self._retry_at = 0.0

    @property
    def queued(self) -> int:
        """How many items wait for their first batch."""
        return self._inbox.qsize()

    @property
    def backlog(self) -> int:
        """How many items wait for another batch after one in vain."""
        return len(self._backlog)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def submit(self, item: Item) -> None:
        """Queue an item for the next batch. Never waits; safe to call from any thread."""
        self._inbox.put(item)
        if self._thread is None:
            self._start()

    def retry_later(self, items: list[Item], seconds: float) -> None:
        """Put items first in the first batch after `seconds`. For `process`; batches go on meanwhile."""
        self._backlog += items
        self._retry_at = time.monotonic() + seconds

    def stop(self, seconds: float) -> int:
        """Finish what is queued, if that takes no longer. Returns how many items were left undone."""
        thread = self._thread
        if thread is not None:
            self._stop_by = time.monotonic() + seconds
            self._inbox.put(None)
            thread.join(seconds + 1)
        return self._inbox.qsize() + len(self._backlog)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            # Set before the thread runs, because it is the thread that unsets it.
            self._thread = thread
            try:
                thread.start()
            except RuntimeError as error:  # short of memory: the next item tries again
                self._thread = None
                logger.warning("the thread %r could not be started: %s", self._name, error)

    def _run(self) -> None:
        try:
            while True:
                items = self._collect()
                if items:
                    self._process(items)
                elif self._is_done():
                    return
        finally:
            self._close()
            self._thread = self._stop_by = None
            if self._inbox.qsize():  # it came while we were closing
                self._start()

    def _is_done(self) -> bool:
        if self._stop_by is None or self._inbox.qsize():
            return False
        return not self._backlog or time.monotonic() > self._stop_by

    def _collect(self) -> list[Item]:
        """Take everything that is queued, up to a batch. Blocks while there is nothing to do."""
        items: list[Item] = []
        timeout = None if self._stop_by is None else 0.0
        if self._backlog:
            timeout = max(0.0, self._retry_at - time.monotonic())
        try:
            item = self._inbox.get(timeout=timeout)
            while True:
                if item is not None:
                    items.append(item)
                if len(items) >= self._max_batch:
                    break
                item = self._inbox.get_nowait()
        except Empty:
            pass
        if self._backlog and time.monotonic() >= self._retry_at:
            items, self._backlog = self._backlog + items, []
        return items


_instances: WeakSet[BatchThread[Any]] = WeakSet()


def _forget_threads_of_parent() -> None:
    for each in list(_instances):
        each._reset()


# Threads do not survive a fork, and a lock that one of them held would stay locked.
os.register_at_fork(after_in_child=_forget_threads_of_parent)


def deliver_in_loops(
    results: Iterable[tuple[asyncio.AbstractEventLoop, Result]], deliver: Callable[[list[Result]], None]
) -> list[Result]:
    """
    Call `deliver` once in each event loop, with all results that its tasks wait for.

    Returns the results whose loop is closed: nobody is left there to take them.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Result]] = {}
    for loop, result in results:
        by_loop.setdefault(loop, []).append(result)
    undelivered = []
    for loop, its_results in by_loop.items():
        try:
            loop.call_soon_threadsafe(deliver, its_results)
        except RuntimeError:  # the loop is closed, and its tasks with it
            undelivered += its_results
    return undelivered
