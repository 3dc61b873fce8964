"""Why a request is cancelled before its end, and which error its client gets for it."""

from __future__ import annotations

from enum import Enum

from billing.models import EndedBy
from gateway_site.api.errors import ApiError, DeadlineExceeded, ShuttingDown
from inference.serving.generation import Generation

NO_BACKEND_CALLED = "The request could not be prepared in time. No backend was asked, and nothing is charged."


class CancelReason(Enum):
    DISCONNECT = "the client disconnected"
    SLOW_READER = "the client reads nothing"
    DEADLINE = "the deadline passed"
    SHUTDOWN = "the process shuts down"

    @property
    def ended_by(self) -> EndedBy:
        """Who that is in the ledger, which decides who pays."""
        return _ENDED_BY[self]


_ENDED_BY = {
    CancelReason.DISCONNECT: EndedBy.CLIENT,
    CancelReason.SLOW_READER: EndedBy.CLIENT,
    CancelReason.DEADLINE: EndedBy.DEADLINE,
    CancelReason.SHUTDOWN: EndedBy.SHUTDOWN,
}


def error_of(reason: CancelReason, generation: Generation | None) -> ApiError | None:
    """
    The 504 of a deadline or the 503 of a shutdown; None for a client that is not there to read it.

    A client is told not to repeat the request by itself unless it was provably free. Where nobody knows what
    the backend did, the customer pays nothing in the end, but the operator may owe that run, some of the
    credit stays held for minutes, and each repetition would begin another run like it. Where some of the
    answer was seen, it is charged, and a repetition would be charged again.
    """
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
