"""Timeouts of an event loop's tasks, with one timer for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

CHECK_SECONDS = 0.25


class LoopTimer:
    """
    Calls `expire` for each future that is not done by its time, up to CHECK_SECONDS later.

    A timer for each call (`asyncio.timeout`) costs as much as all the rest of the call; this is one timer a
    quarter of a second for all calls of an event loop, and none while nobody waits.
    """

    def __init__(self, expire: Callable[[asyncio.Future[Any]], None]) -> None:
        self._expire = expire
        self._pending: dict[asyncio.AbstractEventLoop, deque[tuple[float, asyncio.Future[Any]]]] = {}

    def add(self, future: asyncio.Future[Any], until: float) -> None:
        """Expire the future at `until`, on the monotonic clock. Called by a task of the future's loop."""
        loop = future.get_loop()
        pending = self._pending.get(loop)
        if pending is None:
            for gone in [each for each in self._pending if each.is_closed()]:
                del self._pending[gone]
            pending = self._pending[loop] = deque()
            loop.call_later(CHECK_SECONDS, self._check, loop)
        pending.append((until, future))

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        still = deque(each for each in self._pending[loop] if not each[1].done())
        for until, future in still:
            if until < now:
                self._expire(future)
        if still:
            self._pending[loop] = still
            loop.call_later(CHECK_SECONDS, self._check, loop)
        else:
            del self._pending[loop]
