"""
Requests at work, each in a task that no connection owns.

A connection that breaks asks its flight to stop and is done. The task closes the backend's connection, counts
what was generated, settles and ends in its own time; until then it is in `flights`, where the end of
the process finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from enum import Enum
from typing import Any

from django.conf import settings

from gateway_site.api.errors import ApiError, DeadlineExceeded, ShuttingDown
from inference.serving.generation import Generation
from inference.serving.response_sender import Wire

# How long aborted requests may take to settle before the process ends without them.
SETTLE_SECONDS = 8.0
NOT_ASKED_IN_TIME = "The request could not be prepared in time. No backend was asked, and nothing is charged."

flights: set[Flight] = set()


class Abort(Enum):
    HUNG_UP = "the client is gone"
    SLOW_READER = "the client takes nothing"
    DEADLINE = "it took too long"
    DRAIN = "the process ends"


class Flight:
    """The work of one request, with its clock: deadline, heartbeats, pings, patience with the client."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.reason: Abort | None = None
        # From admission on.
        self.generation: Generation | None = None
        # Who waits for the end, while it waits for the client.
        self._follower: asyncio.Task[Any] | None = None
        self._is_recalled = False
        self._deadline = time.monotonic() + settings.GATEWAY_DEADLINE_SECONDS
        self._side_tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin. The task ends with what the work raised, or with the error that its abort means."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._fly(work))
        self._timer = self._loop.call_later(self._pause(), self._tick)
        flights.add(self)
        self._task.add_done_callback(self._land)
        return self._task

    def abort(self, reason: Abort) -> None:
        """Stop, for the first reason that was given. Work whose outcome is being written is left to end."""
        if self._task.done() or (self.generation is not None and self.generation.is_settling):
            return
        if self.reason is None:
            self.reason = reason
            self._task.cancel()

    async def follow(self, receive: Any) -> None:
        """
        Until it has ended, whatever it ended with; stopped, if the client leaves before.

        `receive` is awaited here and not in a task of its own, which every request would pay for. Most
        servers tell of an end also when the answer is complete; where one does not, `_land` recalls us.
        """
        self._follower = asyncio.current_task()
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not self.wire.is_complete:
                self.abort(Abort.HUNG_UP)
        except asyncio.CancelledError:
            if not (self._is_recalled and self._follower is not None and self._follower.uncancel() == 0):
                # The server ends us. What is under way is told, and settles before we go.
                self.abort(Abort.DRAIN)
        finally:
            self._follower = None
        if not self._task.done():
            await asyncio.wait({self._task})

    async def _fly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if self.reason is None:
                raise
            if error := self._error_of(self.reason):
                raise error from None

    def _error_of(self, reason: Abort) -> ApiError | None:
        """What a client that is still there is told."""
        is_free = self.generation is None or self.generation.is_provably_free
        if reason is Abort.DEADLINE:
            if self.generation is None or not self.generation.has_asked:
                return DeadlineExceeded(NOT_ASKED_IN_TIME, is_free=True)
            self.generation.note_silence()
            return DeadlineExceeded(is_free=is_free)
        if reason is Abort.DRAIN:
            error = ShuttingDown()
            if not is_free:
                error.should_retry = False
            return error
        return None

    def _land(self, task: asyncio.Task[None]) -> None:
        self._timer.cancel()
        flights.discard(self)
        if self._follower is not None:
            self._is_recalled = True
            self._follower.cancel()

    # --- the clock -----------------------------------------------------------------------------------

    def _pause(self) -> float:
        return max(0.0, min(settings.GATEWAY_HEARTBEAT_SECONDS, self._deadline - time.monotonic()))

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            self.abort(Abort.DEADLINE)
        elif self.wire.blocked_seconds(now) >= settings.GATEWAY_SLOW_READER_SECONDS:
            self.abort(Abort.SLOW_READER)
        elif self.generation is not None and not self.generation.is_over:
            self._beside(self.generation.beat())
            if self.wire.silent_seconds(now) >= settings.GATEWAY_PING_SECONDS:
                self._beside(self.wire.ping())
        if self.reason is None:
            self._timer = self._loop.call_later(self._pause() or 1.0, self._tick)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        # The loop itself holds tasks weakly.
        task = self._loop.create_task(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)


async def stop_all() -> None:
    """End every request of the running loop, and wait until each has settled."""
    loop = asyncio.get_running_loop()
    left = [flight for flight in flights if flight._loop is loop]
    for flight in left:
        flight.abort(Abort.DRAIN)
    if left:
        await asyncio.wait({flight._task for flight in left}, timeout=SETTLE_SECONDS)
