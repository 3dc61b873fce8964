"""
Threads for large bodies, apart from those that read keys and the catalog, and shared fairly.

Reading a body of many values, gathering its texts, counting tokens and building what goes to a backend take
up to seconds for the largest that is accepted. On the event loop every other request would wait that long;
in the common thread pool it would wait for a thread. Here organizations take turns, each with one body at a
time, so that one that sends many large bodies waits for itself.

What waits is bounded, and a request that ends (disconnect, deadline, shutdown) stops its work at the next
checkpoint.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from django.conf import settings
from msgspec import Struct

from gateway_site.api.bodies.checkpoints import stopping
from gateway_site.api.bodies.node_count import MIN_BYTES_OF_NODE, most_nodes
from gateway_site.api.errors import RateLimited, Unavailable

# Bodies up to both are read on the event loop, within about a millisecond.
SMALL_BODY_BYTES: Final = 64 * 1024
SMALL_BODY_NODES: Final = 1_000
# Pieces of work that may wait, however small; one organization's, half.
MAX_WAITING: Final = 4_000
RETRY_AFTER_SECONDS: Final = 1
_NOBODY: Final = object()

WorkParameters = ParamSpec("WorkParameters")
WorkResult = TypeVar("WorkResult")


class BodyWork(Struct, frozen=True):
    """Where the work on one request's body is done: at once if it is small, else in the pool."""

    # Whose turn it takes.
    organization_id: Hashable = None
    size_bytes: int = 0
    is_large: bool = False

    @classmethod
    def on(cls, body: bytes, organization_id: Hashable) -> BodyWork:
        size = len(body)
        is_small = size <= SMALL_BODY_NODES * MIN_BYTES_OF_NODE or (
            size <= SMALL_BODY_BYTES and most_nodes(body) <= SMALL_BODY_NODES
        )
        return cls(organization_id, size, not is_small)

    async def run(
        self,
        function: Callable[WorkParameters, WorkResult],
        *args: WorkParameters.args,
        **options: WorkParameters.kwargs,
    ) -> WorkResult:
        """Call the function, here if the body is small and in the pool if it is large."""
        if not self.is_large:
            return function(*args, **options)
        return await self.run_in_thread(function, *args, **options)

    async def run_in_thread(
        self,
        function: Callable[WorkParameters, WorkResult],
        *args: WorkParameters.args,
        **options: WorkParameters.kwargs,
    ) -> WorkResult:
        """Call the function in the pool; RateLimited or Unavailable if too much waits."""
        work = partial(function, *args, **options)
        return await _pool_of_loop().run(self.organization_id, self.size_bytes, work)


SMALL: Final = BodyWork()


class _Share(Struct):
    """The work that one organization has in the pool."""

    waiting: deque[asyncio.Future[None]]
    # Pieces of work, waiting and running, and the bytes of their bodies.
    pieces: int = 0
    size_bytes: int = 0
    is_running: bool = False


class FairPool:
    """Threads that organizations take in turns. For one event loop, whose thread alone changes it."""

    def __init__(self, threads: ThreadPoolExecutor, count: int) -> None:
        self._threads = threads
        self._idle = count
        self._waiting = 0
        self._size_bytes = 0
        # Those that have anything here, in the order of their turns.
        self._shares: OrderedDict[Hashable, _Share] = OrderedDict()

    async def run(self, owner: Hashable, size_bytes: int, work: Callable[[], WorkResult]) -> WorkResult:
        self._require_room(owner, size_bytes)
        await self._wait_for_turn(owner, size_bytes)
        loop, stop = asyncio.get_running_loop(), threading.Event()
        try:
            running = loop.run_in_executor(self._threads, _stoppable, stop, work)
        except RuntimeError:  # no thread could be started: the process is short of memory
            stop.set()  # what was queued nevertheless does nothing
            self._end_turn(owner, size_bytes)
            raise Unavailable("The server is short of memory. Try again.") from None
        # A thread is free when its work has ended, and not when nobody waits for that any more.
        running.add_done_callback(lambda _: self._end_turn(owner, size_bytes))
        try:
            return await asyncio.shield(running)
        finally:
            stop.set()

    def _require_room(self, owner: Hashable, size_bytes: int) -> None:
        """Refuse a body that finds too much waiting; the first is let in whatever its size."""
        limit_bytes = settings.GATEWAY_BODY_QUEUE_BYTES
        share = self._shares.get(owner)
        if share is not None and (
            2 * len(share.waiting) >= MAX_WAITING or 2 * (share.size_bytes + size_bytes) > limit_bytes
        ):
            raise RateLimited(
                "Too many large requests of this organization are waiting to be read. Try again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if self._shares and (self._waiting >= MAX_WAITING or self._size_bytes + size_bytes > limit_bytes):
            raise Unavailable("Too many large requests are waiting to be read. Try again.")

    async def _wait_for_turn(self, owner: Hashable, size_bytes: int) -> None:
        """Wait until it is the organization's turn, and the turn of this among its own."""
        share = self._shares.setdefault(owner, _Share(deque()))
        share.pieces += 1
        share.size_bytes += size_bytes
        self._size_bytes += size_bytes
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._waiting += 1
        self._start_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given just before
                self._end_turn(owner, size_bytes)
            else:
                if turn in share.waiting:
                    share.waiting.remove(turn)
                    self._waiting -= 1
                self._leave(owner, size_bytes)
            raise

    def _end_turn(self, owner: Hashable, size_bytes: int) -> None:
        self._shares[owner].is_running = False
        self._idle += 1
        self._leave(owner, size_bytes)
        self._start_turns()

    def _leave(self, owner: Hashable, size_bytes: int) -> None:
        share = self._shares[owner]
        share.pieces -= 1
        share.size_bytes -= size_bytes
        self._size_bytes -= size_bytes
        if not share.pieces:
            del self._shares[owner]

    def _start_turns(self) -> None:
        while self._idle:
            # No more of them have work running than there are threads, so this looks at few.
            ready = (each for each, share in self._shares.items() if share.waiting and not share.is_running)
            owner = next(ready, _NOBODY)
            if owner is _NOBODY:
                return
            share = self._shares[owner]
            turn = share.waiting.popleft()
            self._waiting -= 1
            if not turn.cancelled():
                turn.set_result(None)
                share.is_running = True
                self._idle -= 1
                self._shares.move_to_end(owner)


def _stoppable(stop: threading.Event, work: Callable[[], Any]) -> Any:
    with stopping(stop):
        return None if stop.is_set() else work()


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="bodies")


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, FairPool] = WeakKeyDictionary()


def _pool_of_loop() -> FairPool:
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        count = settings.GATEWAY_BODY_THREADS
        pool = _pools[loop] = FairPool(_threads(count), count)
    return pool
