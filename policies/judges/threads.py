"""
Threads in which large texts are prepared for a judge, apart from the common thread pool.

On the event loop every other request would wait for a text of megabytes; in the common pool it would wait
for a thread. Organizations take turns, each with one text at a time, and a question that is given up (a
disconnect, the deadline, another policy's match) ends its work at the next checkpoint.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from gateway_site.api.bodies.checkpoints import checkpoint, stopping

THREADS: Final = 2
# Texts up to this are prepared on the event loop, within some milliseconds.
CHARACTERS_AT_ONCE: Final = 16 * 1024

P = ParamSpec("P")
T = TypeVar("T")

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
    WeakKeyDictionary()
)


async def run_in_thread(owner: str, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What the function returns, called in a thread when it is the owner's turn."""
    async with _turn_of(owner):
        stop = threading.Event()
        work = partial(function, *args, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(_threads(), _stoppable, stop, work)
        finally:
            stop.set()


def _turn_of(owner: str) -> asyncio.Lock:
    # A lock is forgotten when nobody holds it or waits for it.
    locks = _turns.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks.get(owner)
    if lock is None:
        lock = locks[owner] = asyncio.Lock()
    return lock


def _stoppable(stop: threading.Event, work: Callable[[], T]) -> T:
    with stopping(stop):
        checkpoint()
        return work()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="judged-texts")
