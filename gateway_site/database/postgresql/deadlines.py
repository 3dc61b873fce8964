"""How long a thread may wait for the database, whether or not the server shows that it is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_local = threading.local()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End all waits of this thread on PostgreSQL by then. An earlier outer deadline stays."""
    before = ends_at()
    until = time.monotonic() + seconds
    _local.until = until if before is None else min(before, until)
    try:
        yield
    finally:
        _local.until = before


def ends_at() -> float | None:
    """When this thread's deadline is, on the monotonic clock; None where it has none."""
    until: float | None = getattr(_local, "until", None)
    return until


class StatementLimit:
    """The longest that any one statement of this process may take; without a limit until one is set."""

    def __init__(self) -> None:
        self.seconds = float("inf")


# Set where requests are served. Commands and scheduled work lift the server's own limit for some statements.
statement_limit = StatementLimit()
