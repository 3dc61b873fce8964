"""Notices that a client disconnects while its request runs."""

from __future__ import annotations

import asyncio
from typing import Any

from inference.serving.lifecycle.cancellation import CancelReason
from inference.serving.lifecycle.request_task import RequestTask


async def wait_for_client(request: RequestTask, receive: Any) -> None:
    """
    Wait for the request's end, whatever it ended with; cancel it if its client disconnects before.

    A request that is awaited although its client has left is waited for here as well: so the server, when it
    is to stop, gives it the time that it gives to streams.

    `receive` is awaited here and not in a task of its own, which every request would pay for. Most servers
    report a disconnect also when the answer is complete; where one does not, the request's end recalls us.
    """
    waiter = request.waiter = asyncio.current_task()
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not request.sender.is_complete:
            request.cancel(CancelReason.DISCONNECT)
    except asyncio.CancelledError:
        is_recalled = request.is_waiter_recalled
        if is_recalled and waiter is not None:
            is_recalled = waiter.uncancel() == 0
        if not is_recalled:
            # The server ends us. The client of what is under way gets an error, and it settles before we go.
            request.cancel(CancelReason.SHUTDOWN)
    finally:
        request.waiter = None
    if not request.task.done():
        await _wait_for_task(request)


async def _wait_for_task(request: RequestTask) -> None:
    try:
        await asyncio.wait({request.task})
    except asyncio.CancelledError:
        if request.reason is not None:
            raise
        request.cancel(CancelReason.SHUTDOWN)
        await asyncio.wait({request.task})
