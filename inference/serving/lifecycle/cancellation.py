"""Why a request is cancelled before its end, and which error its client gets for it."""

from __future__ import annotations

from enum import Enum

from gateway_site.api.errors import ApiError, DeadlineExceeded, ShuttingDown
from inference.serving.generation import Generation

NO_BACKEND_CALLED = "The request could not be prepared in time. No backend was asked, and nothing is charged."


class CancelReason(Enum):
    DISCONNECT = "the client disconnected"
    SLOW_READER = "the client reads nothing"
    DEADLINE = "the deadline passed"
    SHUTDOWN = "the process shuts down"


def error_of(reason: CancelReason, generation: Generation | None) -> ApiError | None:
    """The 504 of a deadline or the 503 of a shutdown; None for a client that is not there to read it."""
    is_free = generation is None or generation.is_provably_free
    if reason is CancelReason.DEADLINE:
        if generation is None or not generation.has_called_backend:
            return DeadlineExceeded(NO_BACKEND_CALLED, is_free=True)
        return DeadlineExceeded(is_free=is_free)
    if reason is CancelReason.SHUTDOWN:
        error = ShuttingDown()
        if not is_free:
            error.should_retry = False
        return error
    return None
