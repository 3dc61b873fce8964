"""Ends the waits of an event loop's tasks in time, with one timer for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

LOOK_SECONDS = 0.25


class LoopTimer:
    """
    Calls `expire` for each future that is not done by its time, up to LOOK_SECONDS later.

    A timer for each call (`asyncio.timeout`) costs as much as all the rest of the call; this is one timer a
    quarter of a second for all calls of an event loop, and none while nobody waits.
    """

    def __init__(self, expire: Callable[[asyncio.Future[Any]], None]) -> None:
        self._expire = expire
        self._waiting: dict[asyncio.AbstractEventLoop, deque[tuple[float, asyncio.Future[Any]]]] = {}

    def add(self, future: asyncio.Future[Any], until: float) -> None:
        """To be called by a task of the future's loop. `until` is on the monotonic clock."""
        loop = future.get_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            for gone in [each for each in self._waiting if each.is_closed()]:
                del self._waiting[gone]
            waiting = self._waiting[loop] = deque()
            loop.call_later(LOOK_SECONDS, self._look, loop)
        waiting.append((until, future))

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        still = deque(each for each in self._waiting[loop] if not each[1].done())
        for until, future in still:
            if until < now:
                self._expire(future)
        if still:
            self._waiting[loop] = still
            loop.call_later(LOOK_SECONDS, self._look, loop)
        else:
            del self._waiting[loop]
