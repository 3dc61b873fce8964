"""The ledger's thread: runs batches of tickets, and keeps what has not landed yet."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from billing.ledger import batch
from billing.ledger.connection import (
    STATEMENT_TIMEOUT_MS,
    DatabaseProblem,
    LedgerConnection,
    database_problem_of,
)
from billing.ledger.operations import (
    Heartbeat,
    Hold,
    HoldRequest,
    LedgerLimits,
    MarkDispatched,
    Operation,
    OperationResult,
    Release,
)
from billing.models import EndedBy
from gateway_site.api.errors import ApiError, Unavailable
from gateway_site.database.batch_thread import BatchThread, deliver_in_loops
from gateway_site.database.postgresql.deadlines import deadline

logger = logging.getLogger(__name__)

MAX_BATCH = 512
# The server ends a statement of the ledger before this. If it does not, the connection is dead.
BATCH_SECONDS = STATEMENT_TIMEOUT_MS / 1000 + 1
ATTEMPTS = 3
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 2.0
# How long an organization whose row somebody else has locked is left alone.
LOCKED_OUT_SECONDS = 1.0
ROOM_FOR_SPENT_KEYS = 10_000


@dataclass(slots=True, eq=False)
class Ticket:
    """An operation, and who waits for its answer: a task of `loop`, or a thread."""

    operation: Operation
    future: asyncio.Future[OperationResult | None] | Future[OperationResult]
    loop: asyncio.AbstractEventLoop | None
    since: float
    # A transaction that held it may have been committed without our hearing of it.
    is_repeated: bool = False

    @property
    def must_land(self) -> bool:
        return not isinstance(self.operation, HoldRequest | Heartbeat | MarkDispatched)


class Worker:
    def __init__(self, limits: LedgerLimits, patience_seconds: float) -> None:
        self._limits = limits
        # A hold that has waited this long is refused: its caller has given up.
        self._patience_seconds = patience_seconds
        self._connection = LedgerConnection()
        # Settlements that wait for the database to come back are in its backlog.
        self.thread = BatchThread("ledger", self._process, close=self._connection.close, max_batch=MAX_BATCH)
        # Keys that have no request left in this minute, and when (on our clock) that ends.
        self.spent_keys: dict[str, float] = {}
        self._retry_seconds = FIRST_RETRY_SECONDS
        # Organizations whose row another session keeps locked, and until when they are left alone.
        self._locked_out: dict[str, float] = {}

    @property
    def queued(self) -> int:
        return self.thread.queued

    def submit(self, ticket: Ticket) -> None:
        self.thread.submit(ticket)

    def abandon(self, answer: OperationResult | None) -> None:
        """The caller is gone. A hold that nobody knows of is released at once."""
        if isinstance(answer, Hold):
            # It was waiting for credit when it left: no backend has had any part in it.
            release = Release(answer.id, answer.organization_id, EndedBy.CLIENT)
            self.submit(Ticket(release, Future(), None, time.monotonic()))

    def stop(self, seconds: float) -> int:
        """Finish what is queued, if that takes no longer. Returns how many operations were left undone."""
        return self.thread.stop(seconds)

    # --- one batch -----------------------------------------------------------------------------------

    def _process(self, tickets: list[Ticket]) -> None:
        ordinary: list[Ticket] = []
        for ticket in self._wanted(tickets):
            organization = ticket.operation.organization_id.hex
            if organization not in self._locked_out:
                ordinary.append(ticket)
            elif time.monotonic() < self._locked_out[organization]:
                self._give_up([ticket])
            else:
                # Alone, and without waiting for the row: others must not pay if it is still locked.
                self._attempt([ticket], wait=False)
        if ordinary:
            self._attempt(ordinary)

    def _wanted(self, tickets: list[Ticket]) -> list[Ticket]:
        """Without the holds that nobody waits for any more."""
        oldest = time.monotonic() - self._patience_seconds
        wanted = []
        for ticket in tickets:
            if isinstance(ticket.operation, HoldRequest):
                if ticket.future.done():  # cancelled, or tired of waiting
                    continue
                if ticket.since < oldest:
                    self._give_up([ticket])
                    continue
            wanted.append(ticket)
        return wanted

    def _attempt(self, tickets: list[Ticket], *, wait: bool = True) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._commit(tickets, wait)
            except Exception as error:
                # Broad, because this thread serves everyone: an operation that fails in a way nobody
                # thought of is found, answered with a 500 and logged, and the others go on.
                match database_problem_of(error):
                    case DatabaseProblem.LOCKED:
                        self._lock_out(tickets)
                        return
                    case DatabaseProblem.COLLIDED:
                        time.sleep(random.uniform(0.5, 1.5) * 0.01 * 2**attempt)
                    case DatabaseProblem.LOST:
                        self._note_lost(tickets, error)
                    case DatabaseProblem.POISONED:
                        self._isolate(tickets, error)
                        return
            else:
                self._retry_seconds = FIRST_RETRY_SECONDS
                return
        self._give_up(tickets)

    def _commit(self, tickets: list[Ticket], wait: bool) -> None:
        started = time.monotonic()
        repeated = {
            ticket.operation.request_id.hex
            for ticket in tickets
            if ticket.is_repeated and isinstance(ticket.operation, HoldRequest)
        }
        with deadline(BATCH_SECONDS):
            applied = batch.run(
                self._connection.store(),
                [ticket.operation for ticket in tickets],
                self._limits,
                repeated=repeated,
                wait=wait,
            )
        for ticket in tickets:
            self._locked_out.pop(ticket.operation.organization_id.hex, None)
        if applied.spent_keys:
            # Counted from before the database read its clock, so never too long.
            left = (applied.window_ends_at - applied.now).total_seconds()
            self._remember_spent(applied.spent_keys, started + left)
        self._answer(tickets, applied.answers)

    def _remember_spent(self, keys: set[str], until: float) -> None:
        if len(self.spent_keys) > ROOM_FOR_SPENT_KEYS:
            self.spent_keys.clear()
        self.spent_keys.update(dict.fromkeys(keys, until))

    # --- when it fails -------------------------------------------------------------------------------

    def _note_lost(self, tickets: list[Ticket], error: Exception) -> None:
        logger.warning("the ledger lost its database connection: %s", type(error).__name__)
        self._connection.close()
        for ticket in tickets:
            ticket.is_repeated = True

    def _lock_out(self, tickets: list[Ticket]) -> None:
        groups: dict[str, list[Ticket]] = {}
        for ticket in tickets:
            groups.setdefault(ticket.operation.organization_id.hex, []).append(ticket)
        if len(groups) == 1:
            (organization,) = groups
            logger.warning("organization %s is locked by another session", organization)
            self._locked_out[organization] = time.monotonic() + LOCKED_OUT_SECONDS
            self._give_up(tickets)
            return
        for group in groups.values():
            self._attempt(group, wait=False)

    def _isolate(self, tickets: list[Ticket], error: Exception) -> None:
        if len(tickets) > 1:
            for ticket in tickets:
                self._attempt([ticket])
            return
        operation = tickets[0].operation
        logger.error("the ledger cannot do %s", type(operation).__name__, exc_info=error)
        self._answer(tickets, [ApiError()])

    def _give_up(self, tickets: list[Ticket]) -> None:
        """Refuse what can be refused, and keep what must land for later."""
        kept = [ticket for ticket in tickets if ticket.must_land]
        refused = [ticket for ticket in tickets if not ticket.must_land]
        self._answer(
            refused,
            # The heart goes on beating; the lease is long enough to miss a few.
            [True if isinstance(ticket.operation, Heartbeat) else Unavailable() for ticket in refused],
        )
        if kept:
            self.thread.retry_later(kept, self._retry_seconds * random.uniform(0.5, 1.0))
            self._retry_seconds = min(LONGEST_RETRY_SECONDS, self._retry_seconds * 2)

    # --- answers -------------------------------------------------------------------------------------

    def _answer(self, tickets: Sequence[Ticket], answers: Sequence[OperationResult]) -> None:
        """One call into each event loop, however many of its tasks wait."""
        results = []
        for ticket, answer in zip(tickets, answers, strict=True):
            if ticket.loop is None:
                self._answer_thread(ticket, answer)
            else:
                results.append((ticket.loop, (ticket, answer)))
        for _, answer in deliver_in_loops(results, self._deliver):
            self.abandon(answer)

    def _deliver(self, pairs: list[tuple[Ticket, OperationResult]]) -> None:
        """In the event loop's own thread."""
        for ticket, answer in pairs:
            if ticket.future.done():
                self.abandon(answer)
            else:
                ticket.future.set_result(answer)

    def _answer_thread(self, ticket: Ticket, answer: OperationResult) -> None:
        assert isinstance(ticket.future, Future)  # noqa: S101 - made in `call_all` or `abandon`
        if ticket.future.set_running_or_notify_cancel():
            ticket.future.set_result(answer)
        else:
            self.abandon(answer)
