"""Which settled requests a correction is about, and by which price version each should be charged."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import Q, Sum

from billing.corrections.recharge import LineSums, SettledRequest
from billing.models import (
    CostAdjustment,
    CostLine,
    DailyCost,
    PriceVersion,
    Reservation,
    ReservationState,
    UnrolledCost,
)
from billing.prices import bill
from billing.prices.card import CardVersion
from billing.prices.price import Quantities
from gateway_site.api.errors import NotFound
from gateway_site.api.identifiers import uuid_or_none
from organization.models import Organization

# Requests in one transaction: the account is locked for some tens of milliseconds.
BATCH = 100
# The ids of about so many cost lines are read at once.
SLICE_LINES = 50_000
A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CorrectionScope:
    """The requests of a model that were admitted in a period, its end excluded, and the card for them."""

    model: str
    starts_at: datetime
    ends_at: datetime
    # None: each by the version in force when it was admitted, as versions are known now.
    version: PriceVersion | None = None
    # None: those of all organizations.
    organization: Organization | None = None


class VersionTimeline:
    """The price versions of a model over time, as they are known now."""

    def __init__(self, model: str) -> None:
        self._cards: dict[uuid.UUID, CardVersion] = {}
        self._checksums: dict[uuid.UUID, str] = {}
        # Of those that begin at the same moment, the one that was made last is in force.
        starts: dict[datetime, PriceVersion] = {}
        for version in PriceVersion.objects.filter(model=model).order_by("valid_from", "created_at"):
            starts[version.valid_from] = version
        self._starts, self._versions = list(starts), list(starts.values())

    def at(self, moment: datetime) -> PriceVersion | None:
        """The version in force at this moment; none before the first."""
        index = bisect_right(self._starts, moment)
        return self._versions[index - 1] if index else None

    def card_of(self, version: PriceVersion) -> CardVersion:
        """The version's card, which is read once."""
        if version.pk not in self._cards:
            self._cards[version.pk] = version.versioned_card
        return self._cards[version.pk]

    def is_same_card(self, version_id: uuid.UUID, version: PriceVersion) -> bool:
        """Whether the version of this id says the same as the other, to the last digit."""
        if version_id not in self._checksums:
            self._checksums[version_id] = PriceVersion.objects.get(pk=version_id).checksum
        return self._checksums[version_id] == version.checksum


def find_version(text: str) -> PriceVersion:
    """The price version with this id."""
    identifier = uuid_or_none(text)
    found = PriceVersion.objects.filter(pk=identifier).first() if identifier else None
    if found is None:
        raise NotFound(f"There is no price version with the id {text!r}.")
    return found


def pages_of(scope: CorrectionScope) -> Iterator[tuple[uuid.UUID, list[uuid.UUID]]]:
    """
    The ids of requests that may be meant, some of one organization at a time.

    Each organization's come in the order of their admission, those of one moment by id: who gets the last of
    the credit does not depend on chance. Found by their cost lines, which have an index by time.
    """
    columns = ("organization_id", "admitted_at", "reservation_id")
    waiting: defaultdict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
    for starts_at, ends_at in _slices(scope):
        lines = CostLine.objects.filter(
            _costs_of(scope), admitted_at__gte=starts_at, admitted_at__lt=ends_at, revision=0
        )
        for organization_id, _, reservation_id in lines.values_list(*columns).distinct().order_by(*columns):
            waiting[organization_id].append(reservation_id)
            if len(waiting[organization_id]) >= BATCH:
                yield organization_id, waiting.pop(organization_id)
    yield from waiting.items()


def _slices(scope: CorrectionScope) -> Iterator[tuple[datetime, datetime]]:
    """The period in parts, in order, each with about as many cost lines as are read at once."""
    begins: datetime | None = None
    gathered = 0
    for day, lines in _lines_by_day(scope):
        midnight = datetime.combine(day, time(), UTC)
        begins = begins or midnight
        gathered += lines
        if gathered >= SLICE_LINES:
            parts = -(-gathered // SLICE_LINES)
            length = (midnight + A_DAY - begins) / parts
            for number in range(parts):
                yield from _clipped(scope, begins + number * length, begins + (number + 1) * length)
            begins, gathered = None, 0
    if begins is not None:
        yield from _clipped(scope, begins, scope.ends_at)


def _clipped(
    scope: CorrectionScope, starts_at: datetime, ends_at: datetime
) -> Iterator[tuple[datetime, datetime]]:
    starts_at, ends_at = max(starts_at, scope.starts_at), min(ends_at, scope.ends_at)
    if starts_at < ends_at:
        yield starts_at, ends_at


def _lines_by_day(scope: CorrectionScope) -> list[tuple[date, int]]:
    """How many cost lines the model has on each day of the period that has any."""
    days = Q(day__gte=scope.starts_at.astimezone(UTC).date(), day__lte=scope.ends_at.astimezone(UTC).date())
    # In one statement: a roll-up moves rows from one table to the other.
    not_yet, rolled_up = (
        model.objects.filter(_costs_of(scope) & days).values_list("day").annotate(Sum("lines"))
        for model in (UnrolledCost, DailyCost)
    )
    found: defaultdict[date, int] = defaultdict(int)
    for day, lines in not_yet.union(rolled_up, all=True):
        found[day] += int(lines)
    return sorted(found.items())


def _costs_of(scope: CorrectionScope) -> Q:
    """Costs of the model, and perhaps of others whose names begin alike: the requests themselves decide."""
    costs = Q(line_item__startswith=f"{scope.model}, ")
    return costs if scope.organization is None else costs & Q(organization=scope.organization)


def read_requests(
    scope: CorrectionScope, organization_id: uuid.UUID, ids: Collection[uuid.UUID]
) -> list[SettledRequest]:
    """The requests of a page as they stand, in its order. Read under the account's lock, they stay so."""
    adjustments = CostAdjustment.objects.filter(reservation__in=ids).order_by("revision")
    latest = {
        reservation_id: charged
        for reservation_id, *charged in adjustments.values_list(
            "reservation_id", "to_version_id", "revision", "charged_after_nanousd"
        )
    }
    reservations = Reservation.objects.filter(
        pk__in=ids, organization=organization_id, model=scope.model, state=ReservationState.SETTLED
    ).values_list(
        "id", "project_id", "api_key_id", "admitted_at", "used", "price_version_id", "charged_nanousd"
    )
    found = {}
    for identifier, project_id, key_id, admitted_at, used, version_id, charged in reservations:
        found[identifier] = SettledRequest(
            identifier,
            project_id,
            key_id,
            scope.model,
            admitted_at,
            None if used is None else Quantities(**used),
            *latest.get(identifier, (version_id, 0, charged)),
        )
    return [found[identifier] for identifier in ids if identifier in found]


def read_lines(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, LineSums]:
    """The cost lines of these requests, each item summed over all revisions."""
    found: dict[uuid.UUID, LineSums] = {}
    sums = CostLine.objects.filter(reservation__in=ids).values_list("reservation_id", "line_item")
    for reservation_id, item, quantity, amount in sums.annotate(Sum("quantity"), Sum("amount_nanousd")):
        found.setdefault(reservation_id, {})[item] = (int(quantity), int(amount))
    return found


def is_priced(request: SettledRequest, lines: LineSums) -> bool:
    """Whether its charge follows from quantities: an amount that was found out later has no price."""
    return request.used is not None and f"{request.model}, {bill.RECONCILED}" not in lines
