"""
Few passwords are checked at a time.

A check is a tenth of a second or more of processor time, by design. Many at once would leave the event loop,
and with it every other request of the process, a small share of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 2
MOST_WAITING = 16
WAIT_SECONDS = 5

_checking = threading.BoundedSemaphore(AT_ONCE)
_present = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)


class TooManyChecks(Exception):
    """As many wait as may; this one is not checked."""


@contextmanager
def one_check() -> Iterator[None]:
    """Wait for a turn to check a password. Raises TooManyChecks where that would take too long."""
    if not _present.acquire(blocking=False):
        raise TooManyChecks
    try:
        if not _checking.acquire(timeout=WAIT_SECONDS):
            raise TooManyChecks
        try:
            yield
        finally:
            _checking.release()
    finally:
        _present.release()
