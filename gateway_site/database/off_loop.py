"""
Database reads that an event loop waits for: in threads of their own, and not for longer than the clock says.

The threads are few and do nothing else, so that reads of a database that does not answer leave the process's
other threads alone. Each read has a deadline in its thread as well: there it ends a moment after its caller
got the 503, and the next one may begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, TypeVar

from channels.db import database_sync_to_async
from django.conf import settings

from gateway_site.api.errors import Unavailable
from gateway_site.database.postgresql.deadlines import deadline

THREADS = 8
# The thread looks at its clock ten times a second; what it says of the database is more than a timeout is.
GRACE_SECONDS = 0.3

Given = ParamSpec("Given")
Value = TypeVar("Value")

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="database-read")


def off_loop(read: Callable[Given, Value]) -> Callable[Given, Awaitable[Value]]:
    """Make `read` a coroutine function, which raises Unavailable after GATEWAY_DATABASE_WAIT_SECONDS."""

    @wraps(read)
    def within_deadline(*args: Given.args, **options: Given.kwargs) -> Value:
        with deadline(settings.GATEWAY_DATABASE_WAIT_SECONDS):
            return read(*args, **options)

    # Each call is a reading, whole in itself, so any of the threads will do.
    threaded = database_sync_to_async(within_deadline, thread_sensitive=False, executor=_threads)

    @wraps(read)
    async def reading(*args: Given.args, **options: Given.kwargs) -> Value:
        try:
            async with asyncio.timeout(settings.GATEWAY_DATABASE_WAIT_SECONDS + GRACE_SECONDS):
                value: Value = await threaded(*args, **options)
        except TimeoutError:
            raise Unavailable() from None
        return value

    return reading
