"""
Checkpoints of long work in a thread: where it lets the event loop run, and where it can be stopped.

Python stops no thread from outside. Work that may take longer than a few milliseconds calls `checkpoint` as
it goes along. In a thread that was given a stop signal by `stopping`, that raises once the signal is set; in
any other thread, and on the event loop, it does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Long enough for a thread that waits for the interpreter to wake up and take it.
PAUSE_SECONDS = 0.0001


class Stopped(Exception):
    """Nobody waits for the result any more: the client disconnected, or the deadline has passed."""


class _Current(threading.local):
    stop: threading.Event | None = None
    resumed_at: float = 0.0


_current = _Current()
# How long a thread may keep the interpreter between two checkpoints before it pauses.
BUSY_SECONDS = 0.001


def checkpoint() -> None:
    """Raise Stopped if the work of this thread is no longer wanted; pause if it has run for a while."""
    stop = _current.stop
    if stop is None:
        return
    if stop.is_set():
        raise Stopped
    if time.monotonic() - _current.resumed_at >= BUSY_SECONDS:
        time.sleep(PAUSE_SECONDS)
        _current.resumed_at = time.monotonic()


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Have `checkpoint` in this thread obey the stop signal."""
    _current.stop, _current.resumed_at = stop, time.monotonic()
    try:
        yield
    finally:
        _current.stop = None
