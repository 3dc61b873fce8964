"""Which settled requests a correction is about, and by which price version each should be charged."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import Q, Sum

from billing.corrections.recharge import SettledRequest
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
from gateway_site.api.errors import NotFound
from gateway_site.api.identifiers import uuid_or_none
from organization.models import Organization

# Requests in one transaction: the account is locked for some tens of milliseconds.
BATCH = 200


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


def organizations_of(scope: CorrectionScope) -> list[uuid.UUID]:
    """The organizations that were charged for the model on the days of the period, in order."""
    if scope.organization is not None:
        return [scope.organization.pk]
    costs = Q(
        day__gte=scope.starts_at.astimezone(UTC).date(),
        day__lte=scope.ends_at.astimezone(UTC).date(),
        line_item__startswith=f"{scope.model}, ",
    )
    # In one statement: a roll-up moves rows from one table to the other.
    not_yet, rolled_up = (
        model.objects.filter(costs).values_list("organization_id", flat=True)
        for model in (UnrolledCost, DailyCost)
    )
    return sorted(set(not_yet.union(rolled_up)))


def pages_of(scope: CorrectionScope, organization_id: uuid.UUID) -> Iterator[list[uuid.UUID]]:
    """
    The ids of an organization's requests that may be meant, by time of admission and id, page by page.

    Found by their cost lines, which have an index by organization and time.
    """
    lines = CostLine.objects.filter(
        organization=organization_id,
        admitted_at__gte=scope.starts_at,
        admitted_at__lt=scope.ends_at,
        revision=0,
        line_item__startswith=f"{scope.model}, ",
    )
    ordered = lines.values_list("admitted_at", "reservation_id").distinct()
    page = list(ordered.order_by("admitted_at", "reservation_id")[:BATCH])
    while page:
        yield [reservation_id for _, reservation_id in page]
        moment, last = page[-1]
        beyond = Q(admitted_at__gt=moment) | Q(admitted_at=moment, reservation_id__gt=last)
        # The first condition follows from the second, and bounds the index.
        after = ordered.filter(Q(admitted_at__gte=moment) & beyond)
        page = list(after.order_by("admitted_at", "reservation_id")[:BATCH])


def read_requests(
    scope: CorrectionScope, organization_id: uuid.UUID, ids: Collection[uuid.UUID]
) -> list[SettledRequest]:
    """The requests of a page as they stand, in its order. Read under the account's lock, they stay so."""
    reservations = Reservation.objects.filter(
        pk__in=ids, organization=organization_id, model=scope.model, state=ReservationState.SETTLED
    )
    latest = {}
    for adjustment in CostAdjustment.objects.filter(reservation__in=ids).order_by("revision"):
        latest[adjustment.reservation_id] = adjustment
    lines: dict[uuid.UUID, dict[str, tuple[int, int]]] = {}
    sums = CostLine.objects.filter(reservation__in=ids).values_list("reservation_id", "line_item")
    for reservation_id, item, quantity, amount in sums.annotate(Sum("quantity"), Sum("amount_nanousd")):
        lines.setdefault(reservation_id, {})[item] = (int(quantity), int(amount))
    found = {
        each.pk: _settled_request(each, latest.get(each.pk), lines.get(each.pk, {})) for each in reservations
    }
    return [found[identifier] for identifier in ids if identifier in found]


def _settled_request(
    reservation: Reservation, latest: CostAdjustment | None, lines: dict[str, tuple[int, int]]
) -> SettledRequest:
    # An amount that was found out later is no matter of prices, though tokens were counted before.
    is_by_amount = f"{reservation.model}, {bill.RECONCILED}" in lines
    return SettledRequest(
        id=reservation.pk,
        project_id=reservation.project_id,
        key_id=reservation.api_key_id,
        model=reservation.model,
        admitted_at=reservation.admitted_at,
        used=None if is_by_amount else reservation.used_quantities,
        version_id=latest.to_version_id if latest else reservation.price_version_id,
        revision=latest.revision if latest else 0,
        charged_nanousd=latest.charged_after_nanousd if latest else reservation.charged_nanousd or 0,
        lines=lines,
    )
