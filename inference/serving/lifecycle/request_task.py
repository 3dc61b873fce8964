"""
Runs every request in a task of its own, which no connection owns.

A connection whose client disconnects cancels its request's task. The task closes the backend's connection,
counts what was generated, settles and ends in its own time; until then it is in `running_requests`, where the
shutdown of the process finds it. One task goes on: that of an answer in JSON of which nothing is there yet.
Its backend is at work on the whole of it, and only its report says what that cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from billing.models import EndedBy
from inference.serving.generation import Generation
from inference.serving.lifecycle.cancellation import CancelReason, error_of
from inference.serving.lifecycle.deadline import RequestTimer
from inference.serving.response_sender import ResponseSender

# How long cancelled requests may take to settle before the process ends without them.
SETTLE_SECONDS = 8.0

running_requests: set[RequestTask] = set()


class RequestTask:
    """The asyncio task of one request, with its deadline, and the one reason for which it was cancelled."""

    __slots__ = (
        "_timer",
        "generation",
        "has_client_left",
        "is_waiter_recalled",
        "reason",
        "sender",
        "task",
        "waiter",
    )

    task: asyncio.Task[None]

    def __init__(self, sender: ResponseSender) -> None:
        self.sender = sender
        self.reason: CancelReason | None = None
        # Nobody is there to read the answer, whether or not it is awaited.
        self.has_client_left = False
        # From admission on.
        self.generation: Generation | None = None
        # The connection's own task, while it waits for a disconnect. Our end cancels it: a recall.
        self.waiter: asyncio.Task[Any] | None = None
        self.is_waiter_recalled = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin. The task ends with what the work raised, or with the error of its cancellation."""
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._run(work))
        self._timer = RequestTimer(self, loop)
        running_requests.add(self)
        self.task.add_done_callback(self._finish)
        return self.task

    def cancel(self, reason: CancelReason) -> None:
        """Stop, for the first reason that was given. Work whose outcome is being written is left to end."""
        generation = self.generation
        if self.task.done() or self.reason is not None:
            return
        if generation is not None and generation.is_settling:
            return
        if reason.ended_by is EndedBy.CLIENT:
            self.has_client_left = True
            if generation is not None and generation.outlives_client:
                self.sender.is_abandoned = True
                generation.has_client_left = True
                return
        self.reason = reason
        if generation is not None:
            # Before the cancellation, which arrives as the same exception whatever it is for.
            generation.note_end(reason.ended_by)
        self.task.cancel()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if self.reason is None:
                raise
            if self.reason is CancelReason.DEADLINE and self.generation is not None:
                self.generation.record_timeout()
            if error := error_of(self.reason, self.generation):
                raise error from None

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._timer.stop()
        running_requests.discard(self)
        if self.waiter is not None:
            self.is_waiter_recalled = True
            self.waiter.cancel()


async def stop_all() -> None:
    """Cancel every request of the running loop for a shutdown, and wait until each has settled."""
    loop = asyncio.get_running_loop()
    left = [request for request in running_requests if request.task.get_loop() is loop]
    for request in left:
        request.cancel(CancelReason.SHUTDOWN)
    if left:
        await asyncio.wait({request.task for request in left}, timeout=SETTLE_SECONDS)
