"""
How operators end requests whose outcome is unknown: one by one at a cost they know, or many by a rule.

Every one is decided by the ledger's own operations, under the account's lock and by the row as it is then. So
all of this may run twice, beside the sweeper, and beside settlements that come late after all: the first
ending wins, and what others ended meanwhile is counted as already resolved.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

from django.db import connection, models, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Now

from billing.ledger import batch
from billing.ledger.ledger import limits_from_settings
from billing.ledger.operations import (
    ChargeObserved,
    Reconcile,
    ReleaseUnknown,
    ReservationOutcome,
    Resolution,
    WriteOff,
)
from billing.models import Account, Reservation, ReservationState
from billing.money import MAX_NANOUSD, usd
from gateway_site.api.errors import ApiError, Conflict, InvalidRequest, NotFound
from organization.audit import trail
from organization.audit.trail import Actor
from organization.models import Organization

# Of one organization, in one transaction: admission waits for it, and half a second is all that it waits.
BATCH = 200
# In one call, which is all that it remembers; the others are there again in the next.
MOST_RESOLVED = 50_000
LONGEST_PAUSE_SECONDS = 0.1


class UnknownResolution(models.TextChoices):
    """A rule by which reservations whose outcome is unknown are ended."""

    RELEASE = "release"
    CHARGE_OBSERVED = "charge_observed"
    WRITE_OFF = "write_off"


OPERATIONS: dict[str, type[ReleaseUnknown | ChargeObserved | WriteOff]] = {
    UnknownResolution.RELEASE: ReleaseUnknown,
    UnknownResolution.CHARGE_OBSERVED: ChargeObserved,
    UnknownResolution.WRITE_OFF: WriteOff,
}


class OwnedReservation(NamedTuple):
    """A reservation's id, and that of the organization whose account is locked for it."""

    id: uuid.UUID
    organization_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class UnknownTotals:
    """How many reservations are unknown, how many of them have usage to charge, and what they hold."""

    count: int
    observed: int
    held_nanousd: int


@dataclass(slots=True)
class ResolvedTotals:
    """What a rule has done to many reservations."""

    charged: int = 0
    released: int = 0
    written_off: int = 0
    # Ended by somebody else since they were looked for, or never unknown.
    already_resolved: int = 0
    charged_nanousd: int = 0
    operator_loss_nanousd: int = 0
    # How many matched and were too many for one call.
    left_over: int = 0

    @property
    def resolved(self) -> int:
        return self.charged + self.released + self.written_off

    def count(self, outcome: ReservationOutcome) -> None:
        if not outcome.won:
            self.already_resolved += 1
            return
        match outcome.state:
            case ReservationState.SETTLED:
                self.charged += 1
            case ReservationState.RELEASED:
                self.released += 1
            case ReservationState.WRITTEN_OFF:
                self.written_off += 1
        self.charged_nanousd += outcome.charged_nanousd or 0
        self.operator_loss_nanousd += outcome.operator_loss_nanousd

    def __iadd__(self, other: ResolvedTotals) -> ResolvedTotals:
        self.charged += other.charged
        self.released += other.released
        self.written_off += other.written_off
        self.already_resolved += other.already_resolved
        self.charged_nanousd += other.charged_nanousd
        self.operator_loss_nanousd += other.operator_loss_nanousd
        self.left_over += other.left_over
        return self


# --- one reservation -----------------------------------------------------------------------------------


def settle_reservation(
    *, reservation_id: uuid.UUID, amount_nanousd: int, actor: Actor
) -> tuple[Reservation, ReservationOutcome]:
    """Settle an unknown reservation at what it is now known to have cost."""
    if not 0 <= amount_nanousd <= MAX_NANOUSD:
        raise InvalidRequest("A cost is not negative.")
    with transaction.atomic():
        reservation = _find(reservation_id)
        operation = Reconcile(reservation.pk, reservation.organization_id, amount_nanousd)
        return _resolve_one(reservation, operation, "reservation.settle", actor)


def resolve_reservation(
    *, reservation_id: uuid.UUID, resolution: UnknownResolution, actor: Actor
) -> tuple[Reservation, ReservationOutcome]:
    """End an unknown reservation by a rule."""
    with transaction.atomic():
        reservation = _find(reservation_id)
        operation = OPERATIONS[resolution](reservation.pk, reservation.organization_id)
        return _resolve_one(reservation, operation, f"reservation.{resolution}", actor)


def _find(reservation_id: uuid.UUID) -> Reservation:
    reservation = Reservation.objects.filter(pk=reservation_id).first()
    if reservation is None:
        raise NotFound(f"There is no reservation {reservation_id}.")
    return reservation


def _resolve_one(
    reservation: Reservation, operation: Resolution, action: str, actor: Actor
) -> tuple[Reservation, ReservationOutcome]:
    (outcome,) = _outcomes_of([operation])
    if not outcome.won:
        raise Conflict(f"The reservation is {outcome.state}; only an unknown one can be resolved.")
    _record_one(reservation, outcome, action, actor)
    reservation.refresh_from_db()
    return reservation, outcome


def _record_one(reservation: Reservation, outcome: ReservationOutcome, action: str, actor: Actor) -> None:
    trail.record(
        actor,
        action,
        reservation,
        organization=reservation.organization,
        details={
            "charged_usd": usd(outcome.charged_nanousd or 0),
            "operator_loss_usd": usd(outcome.operator_loss_nanousd),
        },
    )


# --- many at once --------------------------------------------------------------------------------------


def unknown_reservations(
    *, older_than: timedelta, organization: Organization | None = None, model: str | None = None
) -> QuerySet[Reservation]:
    """The reservations that have been unknown for this long, by the database's clock."""
    found = Reservation.objects.filter(state=ReservationState.UNKNOWN, unknown_at__lte=Now() - older_than)
    if organization is not None:
        found = found.filter(organization=organization)
    return found if model is None else found.filter(model=model)


def totals_of(unknown: QuerySet[Reservation]) -> UnknownTotals:
    """Sum up unknown reservations, of however many organizations."""
    found = unknown.aggregate(
        count=Count("pk"), observed=Count("pk", filter=Q(used__isnull=False)), held=Sum("reserved_nanousd")
    )
    return UnknownTotals(found["count"], found["observed"], int(found["held"] or 0))


def resolve_reservations(
    *,
    older_than: timedelta,
    resolution: UnknownResolution,
    actor: Actor,
    organization: Organization | None = None,
    model: str | None = None,
    limit: int = MOST_RESOLVED,
) -> ResolvedTotals:
    """
    End what has been unknown for this long by a rule, in batches that are committed one by one.

    Stopped in the middle it has done a part, and called again it does the others.
    """
    if older_than < timedelta():
        raise InvalidRequest("An age is not negative.")
    matching = unknown_reservations(older_than=older_than, organization=organization, model=model)
    # By organization, which is what a batch locks.
    ids = matching.order_by("organization_id", "admitted_at").values_list("pk", "organization_id")
    chosen = [OwnedReservation(*each) for each in ids[: limit + 1]]
    totals = resolve_chosen(chosen[:limit], resolution=resolution, actor=actor)
    if len(chosen) > limit:
        totals.left_over = totals_of(matching).count
    return totals


def resolve_chosen(
    chosen: Iterable[OwnedReservation], *, resolution: UnknownResolution, actor: Actor
) -> ResolvedTotals:
    """End these reservations by a rule, those of one organization after those of another."""
    totals = ResolvedTotals()
    took_seconds = 0.0
    for few in _batches(chosen):
        # Admission's turn: SQLite's one lock goes to whoever asks first, and that would be us again.
        time.sleep(min(LONGEST_PAUSE_SECONDS, took_seconds))
        began = time.monotonic()
        totals += _resolve_batch(few, resolution, actor)
        took_seconds = time.monotonic() - began
    return totals


def _batches(chosen: Iterable[OwnedReservation]) -> Iterator[list[OwnedReservation]]:
    def owner(reservation: OwnedReservation) -> uuid.UUID:
        return reservation.organization_id

    for _, group in groupby(sorted(chosen, key=owner), key=owner):
        owned = list(group)
        for start in range(0, len(owned), BATCH):
            yield owned[start : start + BATCH]


def _resolve_batch(
    few: Sequence[OwnedReservation], resolution: UnknownResolution, actor: Actor
) -> ResolvedTotals:
    """End a batch of one organization's reservations, and record it with them."""
    totals = ResolvedTotals()
    with transaction.atomic():
        outcomes = _outcomes_of([OPERATIONS[resolution](*each) for each in few])
        for outcome in outcomes:
            totals.count(outcome)
        won = [each.id for each, outcome in zip(few, outcomes, strict=True) if outcome.won]
        if len(few) == 1 and won:
            _record_one(_find(few[0].id), outcomes[0], f"reservation.{resolution}", actor)
        elif won:
            _record_many(few[0].organization_id, won, totals, resolution, actor)
    return totals


def _record_many(
    organization_id: uuid.UUID,
    ids: Sequence[uuid.UUID],
    totals: ResolvedTotals,
    resolution: UnknownResolution,
    actor: Actor,
) -> None:
    """
    Record what a rule did as one event that names every reservation.

    An event for each would bury what people did before: thousands of entries say the same.
    """
    account = Account.objects.select_related("organization").get(pk=organization_id)
    trail.record(
        actor,
        f"reservations.{resolution}",
        account,
        organization=account.organization,
        details={
            "count": len(ids),
            "charged": totals.charged,
            "charged_usd": usd(totals.charged_nanousd),
            "operator_loss_usd": usd(totals.operator_loss_nanousd),
            "ids": [str(each) for each in ids],
        },
    )


def _outcomes_of(operations: Sequence[Resolution]) -> list[ReservationOutcome]:
    """Apply operations in the transaction that is open."""
    applied = batch.apply(batch.store_over(connection), operations, limits_from_settings())()
    outcomes = []
    for answer in applied.answers:
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, ReservationOutcome)  # noqa: S101 - what a resolution is answered with
        outcomes.append(answer)
    return outcomes
