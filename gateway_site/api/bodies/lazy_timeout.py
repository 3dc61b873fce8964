"""A timeout whose timer is set only if there is something to wait for."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


async def with_lazy_timeout(work: Coroutine[Any, Any, Any], deadline: Callable[[], float]) -> Any:
    """
    Return what the coroutine returns, or raise TimeoutError once the deadline has passed.

    A body that came along with its head is there at once, as nearly all are, and a timer costs more than
    reading it. So the coroutine is driven by hand up to its first wait, and only then is the timer set.
    """
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return done.value
    async with asyncio.timeout_at(deadline()):
        return await _resume(work, awaited)


@types.coroutine
def _resume(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Run a coroutine to its end that already waits for something."""
    try:
        yield awaited
        return (yield from work)
    finally:
        work.close()
