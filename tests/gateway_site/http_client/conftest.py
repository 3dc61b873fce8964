"""Both kinds of event loop, for tests of the HTTP client."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Any:
    """Runs a coroutine function on each kind of loop, and finds what it left open."""

    def runs(main: Callable[[], Awaitable[Any]]) -> Any:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            result = runner.run(_bounded(main))
        gc.collect()  # a transport that was not closed warns when it is collected, and a warning is an error
        return result

    return runs


async def _bounded(main: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(20):
        return await main()
