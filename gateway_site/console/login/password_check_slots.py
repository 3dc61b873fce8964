"""
Slots for checking passwords, of which there are few: only some are hashed at the same time.

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
_admitted = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)


class NoPasswordCheckSlot(Exception):
    """As many passwords wait to be checked as may; this one is not checked."""


@contextmanager
def password_check_slot() -> Iterator[None]:
    """Wait for a turn to check a password. Raises NoPasswordCheckSlot where that would take too long."""
    if not _admitted.acquire(blocking=False):
        raise NoPasswordCheckSlot
    try:
        if not _checking.acquire(timeout=WAIT_SECONDS):
            raise NoPasswordCheckSlot
        try:
            yield
        finally:
            _checking.release()
    finally:
        _admitted.release()
