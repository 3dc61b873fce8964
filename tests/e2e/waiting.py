"""For what another process does: looked at until it is there, because nothing tells us."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def until(look: Callable[[], Value | None], seconds: float = 10) -> Value:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"nothing after {seconds} s"
        time.sleep(0.02)
    return found
