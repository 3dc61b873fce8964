"""
The TTL cache in front of reads that every request needs, with single flight: nobody reads what is being read.

An entry is read again when it is needed and too old, so that a change made anywhere, by whatever means, is
seen by every process within the entry's maximum age.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

# More than there are models, or keys in use at a time. Asking for what nobody has must not fill the memory.
MAX_ENTRIES = 10_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlightCache(Generic[Key, Value]):
    """Values by key, none older than `max_age_seconds`, counted from the moment its reading began."""

    def __init__(
        self,
        max_age_seconds: float,
        *,
        max_entries: int = MAX_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_age_seconds = max_age_seconds
        self._max_entries = max_entries
        self._clock = clock
        self._entries: dict[Key, tuple[float, Value]] = {}
        self._loads: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        """Return the cached value, or what `load` returns. A load that raises is not remembered."""
        entry = self._entries.get(key)
        if entry is not None and self._clock() - entry[0] < self.max_age_seconds:
            return entry[1]
        loop = asyncio.get_running_loop()
        running = self._loads.get(key)
        if running is None or running.done() or running.get_loop() is not loop:
            running = self._loads[key] = loop.create_task(self._refresh(key, load))
        # Shielded: a client that disconnects must not end the load for the others who wait for it.
        return await asyncio.shield(running)

    def clear(self) -> None:
        """Forget every value, so that each is loaded when next needed."""
        self._entries.clear()
        self._loads.clear()

    def __len__(self) -> int:
        return len(self._entries)

    async def _refresh(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        began_at = self._clock()
        try:
            value = await load()
        finally:
            self._loads.pop(key, None)
        if len(self._entries) >= self._max_entries:
            self._entries.clear()
        self._entries[key] = (began_at, value)
        return value
