"""
Counters of one process, where no Redis is configured or it does not answer.

Each group of counters has a store of its own, so that noise in one cannot push out what another has counted.
A store is bounded. When it is full, counters whose time is over go first, then those that are furthest from
their limit; one that has reached its limit stays until its time is over.
"""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger(__name__)

MAX_ENTRIES = 20_000
# At least this part of a full store is emptied at a time, so that it is not searched for every new counter.
ROOM = 10
# How long a store that is full of counters at their limit is not searched again.
FULL_SECONDS = 1.0
LOG_SECONDS = 60.0


class WindowCounter:
    """How many were counted in one window, which ends at `ends_at`."""

    __slots__ = ("counted", "ends_at", "limit")

    def __init__(self, limit: int, ends_at: float) -> None:
        self.counted = 0
        self.limit = limit
        self.ends_at = ends_at

    @property
    def is_limiting(self) -> bool:
        return self.counted >= self.limit


class CounterStore:
    """The counters of one group. Safe to use from any thread."""

    def __init__(self, group: str, max_entries: int = MAX_ENTRIES) -> None:
        self._group = group
        self._max_entries = max_entries
        self._counters: dict[str, WindowCounter] = {}
        self._lock = threading.Lock()
        self._full_until = self._logged_at = float("-inf")

    def __len__(self) -> int:
        return len(self._counters)

    def count(self, name: str, *, limit: int, seconds: float) -> int:
        """Count one, and return how many there are. The first one begins a window of so many seconds."""
        now = time.monotonic()
        with self._lock:
            counter = self._counters.get(name)
            if counter is None or counter.ends_at <= now:
                if counter is None and not self._has_room(now):
                    # Nothing that limits is forgotten for it; other windows count the same request.
                    return 1
                counter = self._counters[name] = WindowCounter(limit, now + seconds)
            counter.counted += 1
            return counter.counted

    def take_back(self, name: str) -> None:
        """Take one back, if it is still counted."""
        with self._lock:
            counter = self._counters.get(name)
            if counter is not None and counter.counted:
                counter.counted -= 1

    def clear(self) -> None:
        with self._lock:
            self._counters.clear()
            self._full_until = float("-inf")

    def _has_room(self, now: float) -> bool:
        if len(self._counters) < self._max_entries:
            return True
        if now < self._full_until:
            return False
        kept = {name: each for name, each in self._counters.items() if each.ends_at > now}
        surplus = len(kept) - self._max_entries + max(1, self._max_entries // ROOM)
        if surplus > 0:
            spare = [name for name, each in kept.items() if not each.is_limiting]
            spare.sort(key=lambda name: kept[name].counted / kept[name].limit)
            for name in spare[:surplus]:
                del kept[name]
        self._counters = kept
        if len(kept) < self._max_entries:
            return True
        self._full_until = now + FULL_SECONDS
        self._log_full(now)
        return False

    def _log_full(self, now: float) -> None:
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            logger.warning("%d counters of %s are at their limit; no more fit", len(self), self._group)


_stores: dict[str, CounterStore] = {}


def store_of(group: str) -> CounterStore:
    """The counter store of this group, one for the process."""
    return _stores.setdefault(group, CounterStore(group))


def clear() -> None:
    for store in _stores.values():
        store.clear()
