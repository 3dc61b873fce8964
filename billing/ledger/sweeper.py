"""
Decides about requests whose process is gone, so that nobody renews their lease; and releases outcomes that
stayed unknown for GATEWAY_UNKNOWN_MINUTES, with what they may have cost as the operator's loss.

No clock that can be set decides that a request is lost. A lease that has run out by the database's clock is
only a candidate: it is swept once this process has seen it unrenewed for a whole lease by its own monotonic
clock. So neither a step of a clock nor a database that stood still for a while ends live requests, which
renew their leases every few seconds.

Any process may sweep, and all do. It only looks for candidates here; each is decided in an ordinary batch of
the ledger, under the account's lock and by the row as it is then. Two sweepers, or a sweeper and a settlement
that comes late after all, cannot both win. (Locking the rows here with SKIP LOCKED would take reservation and
account in the wrong order.)
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.models import Q
from django.db.models.functions import Now

from billing.ledger.ledger import get_ledger
from billing.ledger.operations import Expire, OperationResult, ReservationOutcome
from billing.models import Reservation, ReservationState
from billing.money import usd
from gateway_site.api.errors import ApiError

logger = logging.getLogger(__name__)

# In one go; the rest is there again in the next.
MOST = 1_000
# How many leases are watched at a time, which is all that a process remembers of them.
MOST_WATCHED = 10_000


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """How many reservations a sweep has brought to each state, and what the operator lost by it."""

    # Held by a process that is gone: never sent, seen at a checkpoint, or nobody can know.
    released: int = 0
    settled: int = 0
    unknown: int = 0
    # Unknown for too long.
    unknown_released: int = 0
    operator_loss_nanousd: int = 0

    @property
    def total(self) -> int:
        return self.released + self.settled + self.unknown + self.unknown_released

    def __add__(self, other: SweepCounts) -> SweepCounts:
        return SweepCounts(
            self.released + other.released,
            self.settled + other.settled,
            self.unknown + other.unknown,
            self.unknown_released + other.unknown_released,
            self.operator_loss_nanousd + other.operator_loss_nanousd,
        )


class Candidate(NamedTuple):
    """A reservation that may be due, with its lease if it is held; without one it is unknown."""

    id: uuid.UUID
    organization_id: uuid.UUID
    lease: datetime | None


class LeaseWatch:
    """Since when a process has seen each candidate's lease unrenewed, by its monotonic clock."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = settings.GATEWAY_LEASE_SECONDS if seconds is None else seconds
        self._seen_since: dict[Candidate, float] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._seen_since)

    def lost(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that were the same for a whole lease. What is none any more is forgotten."""
        now = time.monotonic()
        self._seen_since = {each: self._seen_since.get(each, now) for each in candidates if each.lease}
        return [
            each for each in candidates if each.lease is None or now - self._seen_since[each] >= self._seconds
        ]


def sweep(by: LeaseWatch | datetime) -> SweepCounts:
    """Resolve what the watch has seen unrenewed for a lease; or, by a time, what has run out before it."""
    now = None if isinstance(by, LeaseWatch) else by
    due = candidates(now)
    if isinstance(by, LeaseWatch):
        due = by.lost(due)
    due = due[:MOST]
    answers = get_ledger().call_all([Expire(each.id, each.organization_id, now, each.lease) for each in due])
    swept = _counts_of(due, answers)
    if swept.total:
        logger.info(
            "swept: %d released, %d settled, %d unknown; %d released that stayed unknown",
            swept.released,
            swept.settled,
            swept.unknown,
            swept.unknown_released,
        )
    if swept.operator_loss_nanousd:
        logger.warning("requests that were swept may cost the operator $%s", usd(swept.operator_loss_nanousd))
    return swept


def _counts_of(due: Sequence[Candidate], answers: Sequence[OperationResult]) -> SweepCounts:
    """Count what this sweep has won; what others ended meanwhile is theirs."""
    held: Counter[str | None] = Counter()
    unknown: Counter[str | None] = Counter()
    loss = 0
    for candidate, answer in zip(due, answers, strict=True):
        if isinstance(answer, ReservationOutcome) and answer.won:
            (held if candidate.lease else unknown)[answer.state] += 1
            loss += answer.operator_loss_nanousd
    return SweepCounts(
        released=held[ReservationState.RELEASED],
        settled=held[ReservationState.SETTLED],
        unknown=held[ReservationState.UNKNOWN],
        unknown_released=unknown[ReservationState.RELEASED],
        operator_loss_nanousd=loss,
    )


def sweep_after_watching() -> SweepCounts:
    """Sweep in a process that has watched nothing yet: it waits for a lease if it must."""
    watch = LeaseWatch()
    swept = sweep(watch)
    if watch.is_waiting:
        time.sleep(settings.GATEWAY_LEASE_SECONDS)
        swept += sweep(watch)
    return swept


def candidates(now: datetime | None = None) -> list[Candidate]:
    """
    Reservations that may be due, oldest first.

    A lease that ends further ahead than one can be is a candidate as well: the clock was set back, and a
    request whose process is gone would be held until the time comes again.
    """
    moment: Any = now or Now()
    ahead = moment + timedelta(seconds=2 * settings.GATEWAY_LEASE_SECONDS)
    too_old = moment - timedelta(minutes=settings.GATEWAY_UNKNOWN_MINUTES)
    is_doubtful = Q(lease_expires_at__lt=moment)
    if now is None:
        is_doubtful |= Q(lease_expires_at__gt=ahead)
    rows = (
        Reservation.objects.filter(
            (Q(state=ReservationState.HELD) & is_doubtful)
            | Q(state=ReservationState.UNKNOWN, unknown_at__lt=too_old)
        )
        .order_by("admitted_at")
        .values_list("pk", "organization_id", "lease_expires_at", "state")[:MOST_WATCHED]
    )
    return [
        Candidate(pk, owner, lease if state == ReservationState.HELD else None)
        for pk, owner, lease, state in rows
    ]


class Sweeper:
    """A thread that sweeps for as long as the process serves."""

    def __init__(self, every_seconds: float | None = None) -> None:
        self._every_seconds = every_seconds or settings.GATEWAY_SWEEP_SECONDS
        self._watch = LeaseWatch()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(self._every_seconds)

    def _run(self) -> None:
        # First of all at the start: the process before this one may have crashed, and its leases are watched
        # from now on.
        is_over = False
        while not is_over:
            try:
                close_old_connections()
                sweep(self._watch)
            except (DatabaseError, ApiError, MemoryError) as error:
                # The database is away, or the process is short of memory; what has expired will still have
                # expired when that is over.
                logger.warning("could not sweep: %s", type(error).__name__)
            is_over = self._stopped.wait(self._every_seconds)
        connection.close()
