"""The clock of a request: its deadline, its slow reader, its heartbeats and its keep-alive comments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from django.conf import settings

from inference.serving.generation import Generation
from inference.serving.lifecycle.cancellation import CancelReason
from inference.serving.response_sender import ResponseSender

# What timers have started. The loop itself holds tasks weakly.
_background: set[asyncio.Task[None]] = set()


class TimedRequest(Protocol):
    """What a timer has to know of its request."""

    sender: ResponseSender
    generation: Generation | None
    reason: CancelReason | None

    def cancel(self, reason: CancelReason) -> None: ...


class RequestTimer:
    """
    Wakes up at every heartbeat, and at the deadline.

    It cancels a request past its deadline (504) and one whose client reads nothing, renews the lease of the
    hold, and sends a keep-alive comment into a stream that has been silent.
    """

    __slots__ = ("_deadline", "_handle", "_loop", "_request")

    def __init__(self, request: TimedRequest, loop: asyncio.AbstractEventLoop) -> None:
        self._request = request
        self._loop = loop
        self._deadline = time.monotonic() + settings.GATEWAY_DEADLINE_SECONDS
        self._handle = loop.call_later(self._seconds_to_wait(), self._tick)

    def stop(self) -> None:
        self._handle.cancel()
        # The two hold each other, and would stay until the garbage collector comes by.
        del self._request

    def _seconds_to_wait(self) -> float:
        return max(0.0, min(settings.GATEWAY_HEARTBEAT_SECONDS, self._deadline - time.monotonic()))

    def _tick(self) -> None:
        now, request = time.monotonic(), self._request
        if now >= self._deadline:
            request.cancel(CancelReason.DEADLINE)
        elif request.sender.blocked_seconds(now) >= settings.GATEWAY_SLOW_READER_SECONDS:
            request.cancel(CancelReason.SLOW_READER)
        elif request.generation is not None and not request.generation.is_over:
            self._run_in_background(request.generation.heartbeat())
            if request.sender.silent_seconds(now) >= settings.GATEWAY_PING_SECONDS:
                self._run_in_background(request.sender.send_keep_alive())
        if request.reason is None:
            self._handle = self._loop.call_later(self._seconds_to_wait() or 1.0, self._tick)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        _background.add(task)
        task.add_done_callback(_background.discard)
