"""
Group commit: one thread per process does the ledger's work, many operations to a transaction.

While one transaction commits, the next batch collects in the queue. There is no artificial delay, so a
single request pays for one commit and a thousand share one. `operations` documents how to call it.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from django.conf import settings

from billing.ledger import key_rate_limit
from billing.ledger.operations import (
    Heartbeat,
    Hold,
    HoldRequest,
    LedgerLimits,
    MarkDispatched,
    MarkUnknown,
    Operation,
    OperationResult,
    Release,
    ReservationOutcome,
    Settle,
)
from billing.ledger.worker import Ticket, Worker
from billing.models import ChargeBasis, EndedBy
from billing.prices.price import Quantities
from gateway_site.api.errors import ApiError, Unavailable
from gateway_site.api.loop_timer import LoopTimer

# More than this many waiting means that the database cannot keep up; new requests are turned away.
MAX_QUEUED = 10_000
# How long a resolution's caller waits before the ledger goes on without it.
RESOLUTION_WAIT_SECONDS = 3.0

NOT_YET = ReservationOutcome(state=None, is_durable=False)


def _answer_none(future: asyncio.Future[Any]) -> None:
    future.set_result(None)


class Ledger:
    """The ledger as its callers see it. Safe to call from any task of any event loop, and from any thread."""

    def __init__(self, limits: LedgerLimits | None = None) -> None:
        self.limits = limits or limits_from_settings()
        self._wait_seconds = float(settings.GATEWAY_ADMISSION_WAIT_SECONDS)
        self.worker = Worker(self.limits, self._wait_seconds)
        self._timer = LoopTimer(_answer_none)

    # --- for coroutines ------------------------------------------------------------------------------

    async def reserve(self, request: HoldRequest) -> Hold:
        """Hold credit for a request, or raise why it is not admitted."""
        self._refuse_early(request)
        answer = await self._ask(request, self._wait_seconds)
        if answer is None:
            raise Unavailable()
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, Hold)  # noqa: S101 - what a HoldRequest is answered with
        return answer

    async def settle(
        self,
        hold: Hold,
        used: Quantities,
        basis: ChargeBasis = ChargeBasis.USAGE,
        ended_by: EndedBy = EndedBy.COMPLETE,
    ) -> ReservationOutcome:
        """Charge what was used: what was held, and more while there is credit for it."""
        return await self._resolve(Settle(hold.id, hold.organization_id, used, basis, ended_by))

    async def release(self, hold: Hold, ended_by: EndedBy = EndedBy.BACKEND) -> ReservationOutcome:
        """Give the credit back: provably nothing was generated."""
        return await self._resolve(Release(hold.id, hold.organization_id, ended_by))

    async def mark_unknown(self, hold: Hold, ended_by: EndedBy = EndedBy.BACKEND) -> ReservationOutcome:
        """Keep what can have been generated held, for some minutes or until someone finds out."""
        return await self._resolve(MarkUnknown(hold.id, hold.organization_id, ended_by))

    async def mark_dispatched(self, hold: Hold) -> None:
        """Mark the hold as dispatched, durably, before the first byte goes upstream."""
        answer = await self._ask(MarkDispatched(hold.id, hold.organization_id), self._wait_seconds)
        if answer is not True:
            raise answer if isinstance(answer, ApiError) else Unavailable()

    async def heartbeat(self, hold: Hold, observed: Quantities | None = None) -> bool:
        """Extend the lease and note what was seen so far. False: the hold is somebody else's now."""
        answer = await self._ask(Heartbeat(hold.id, hold.organization_id, observed), self._wait_seconds)
        return answer is not False

    async def drain(self, seconds: float) -> int:
        """Finish what is queued and stop, as `close` does, without blocking the event loop."""
        return await asyncio.to_thread(self.close, seconds)

    async def _resolve(self, operation: Operation) -> ReservationOutcome:
        answer = await self._ask(operation, RESOLUTION_WAIT_SECONDS)
        if answer is None:
            return NOT_YET
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, ReservationOutcome)  # noqa: S101 - what a resolution is answered with
        return answer

    async def _ask(self, operation: Operation, seconds: float) -> OperationResult | None:
        """The answer, or None if it did not come in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[OperationResult | None] = loop.create_future()
        now = time.monotonic()
        self.worker.submit(Ticket(operation, future, loop, now))
        self._timer.add(future, now + seconds)
        try:
            return await future
        except asyncio.CancelledError:
            # Cancelled between the answer and our waking up: nobody else will see the hold.
            # When the future itself is cancelled, the worker sees to it.
            if future.done() and not future.cancelled():
                self.worker.abandon(future.result())
            raise

    # --- for threads and commands --------------------------------------------------------------------

    def call(self, operation: Operation) -> OperationResult:
        """Do one operation and wait for it. Not inside a transaction: it waits for another."""
        if isinstance(operation, HoldRequest):
            self._refuse_early(operation)
        (answer,) = self.call_all([operation])
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def call_all(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """
        Do several operations at once, so that they share a transaction.

        A refusal is an answer here like the others: raising it would lose the holds beside it.
        """
        now = time.monotonic()
        tickets = [Ticket(operation, Future(), None, now) for operation in operations]
        for ticket in tickets:
            self.worker.submit(ticket)
        return [self._wait_for(ticket) for ticket in tickets]

    def _wait_for(self, ticket: Ticket) -> OperationResult:
        assert isinstance(ticket.future, Future)  # noqa: S101 - made in `call_all`
        seconds = RESOLUTION_WAIT_SECONDS if ticket.must_land else self._wait_seconds
        try:
            return ticket.future.result(seconds)
        except TimeoutError:
            if ticket.future.cancel():
                return NOT_YET if ticket.must_land else Unavailable()
            return ticket.future.result()

    # --- the queue -----------------------------------------------------------------------------------

    def close(self, seconds: float) -> int:
        """Finish what is queued, then stop. Returns how many operations were left undone."""
        return self.worker.stop(seconds)

    def _refuse_early(self, request: HoldRequest) -> None:
        until = self.worker.spent_keys.get(request.key_id.hex)
        if until is not None:
            left = until - time.monotonic()
            if left > 0:
                raise key_rate_limit.rate_limited(self.limits, retry_after_seconds=math.ceil(left))
            self.worker.spent_keys.pop(request.key_id.hex, None)
        if self.worker.queued > MAX_QUEUED:
            raise Unavailable()


# --- one for each process ----------------------------------------------------------------------------

_ledger: Ledger | None = None
_making = threading.Lock()


def get_ledger() -> Ledger:
    """The ledger of this process, made on first use."""
    global _ledger
    if _ledger is None:
        with _making:
            if _ledger is None:
                _ledger = Ledger()
                atexit.register(close_ledger, 5.0)
    return _ledger


def _forget() -> None:
    global _ledger, _making
    _ledger, _making = None, threading.Lock()


# A child that was forked makes its own: threads do not survive a fork.
os.register_at_fork(after_in_child=_forget)


def close_ledger(seconds: float) -> int:
    """Finish and forget this process's ledger, if it has one."""
    global _ledger
    if _ledger is None:
        return 0
    ledger, _ledger = _ledger, None
    return ledger.close(seconds)


def limits_from_settings() -> LedgerLimits:
    return LedgerLimits(
        requests_per_minute=settings.GATEWAY_REQUESTS_PER_MINUTE,
        concurrency=settings.GATEWAY_CONCURRENCY,
        lease_seconds=settings.GATEWAY_LEASE_SECONDS,
        unknown_minutes=settings.GATEWAY_UNKNOWN_MINUTES,
    )
