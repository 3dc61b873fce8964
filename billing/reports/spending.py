"""
Spending, credit and unsettled requests, as the console's overview shows them.

Reads sums and accounts, and of reservations only the open ones, which have an index of their own: its time
does not grow with the number of requests ever made.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.utils import timezone

from billing.models import DailyCost, Reservation, UnrolledCost
from organization.models import Organization, ProjectKey

# Credit is short when it lasts for fewer days than this, at the average of the last AVERAGED_DAYS.
WARNED_DAYS = 3
AVERAGED_DAYS = 7


@dataclass(frozen=True, slots=True)
class ProjectDay:
    """What one project spent on one UTC day."""

    organization_id: uuid.UUID
    project_id: uuid.UUID
    day: date
    amount_nanousd: int


@dataclass(frozen=True, slots=True)
class Credit:
    organization_id: uuid.UUID
    name: str
    available_nanousd: int
    held_nanousd: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Credit that is gone, or will be in about so many days."""

    credit: Credit
    days_left: float


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Requests that are admitted and have no final cost."""

    held: int
    unknown: int
    oldest_unknown_at: datetime | None


def spent_by_project(first_day: date, organization_id: uuid.UUID | None = None) -> list[ProjectDay]:
    """What each project spent on each day from `first_day` on, of all organizations or one."""
    sums: defaultdict[tuple[uuid.UUID, uuid.UUID, date], int] = defaultdict(int)
    for organization, project, day, amount in _sums(
        first_day, organization_id, "organization", "project", "day"
    ):
        # PostgreSQL sums whole numbers to a decimal.
        sums[organization, project, day] += int(amount)
    return [ProjectDay(*cell, amount) for cell, amount in sums.items()]


def spent_by_key(first_day: date, organization_id: uuid.UUID | None = None) -> dict[uuid.UUID, int]:
    sums: defaultdict[uuid.UUID, int] = defaultdict(int)
    for key, amount in _sums(first_day, organization_id, "api_key"):
        sums[key] += int(amount)
    return dict(sums)


def _sums(first_day: date, organization_id: uuid.UUID | None, *columns: str) -> QuerySet:
    wanted = Q(day__gte=first_day)
    # Named even where all are meant: the table's index begins with the organization, and then the day.
    if organization_id is None:
        wanted &= Q(organization__in=Organization.objects.values("pk"))
    else:
        wanted &= Q(organization=organization_id)
    rolled_up, not_yet = (
        model.objects.filter(wanted)
        .values(*columns)
        .annotate(amount=Sum("amount_nanousd"))
        .values_list(*columns, "amount")
        for model in (DailyCost, UnrolledCost)
    )
    # One statement, and so one instant: a roll-up that moves costs meanwhile is seen whole or not at all.
    both: QuerySet = rolled_up.union(not_yet, all=True)
    return both


def credit_of(organization_id: uuid.UUID | None = None) -> list[Credit]:
    """The credit of all organizations or one. One that was never granted any has none."""
    chosen = Organization.objects.order_by("name")
    if organization_id is not None:
        chosen = chosen.filter(pk=organization_id)
    rows = chosen.values_list(
        "pk", "name", "account__granted_nanousd", "account__held_nanousd", "account__settled_nanousd"
    )
    return [
        Credit(pk, name, (granted or 0) - (held or 0) - (settled or 0), held or 0)
        for pk, name, granted, held, settled in rows
    ]


def shortages(credits: Iterable[Credit], spent_nanousd: Mapping[uuid.UUID, int]) -> list[Shortage]:
    """
    Whose credit is gone while keys still work, or will be soon; the most urgent first.

    `spent_nanousd` is what each organization spent in the last AVERAGED_DAYS.
    """
    empty = [credit for credit in credits if credit.available_nanousd <= 0]
    live = _with_live_keys(credit.organization_id for credit in empty)
    found = [Shortage(credit, 0.0) for credit in empty if credit.organization_id in live]
    for credit in credits:
        spent = spent_nanousd.get(credit.organization_id, 0)
        if 0 < credit.available_nanousd * AVERAGED_DAYS < spent * WARNED_DAYS:
            found.append(Shortage(credit, credit.available_nanousd * AVERAGED_DAYS / spent))
    return sorted(found, key=lambda shortage: shortage.days_left)


def _with_live_keys(organization_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    wanted = list(organization_ids)
    if not wanted:
        return set()
    live = ProjectKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=timezone.now()),
        revoked_at=None,
        suspended_at=None,
        project__archived_at=None,
        project__organization__in=wanted,
    )
    return set(live.values_list("project__organization", flat=True).distinct())


def unsettled(organization_id: uuid.UUID | None = None) -> Unsettled:
    is_open = Reservation.objects.filter(state__in=["held", "unknown"])
    if organization_id is not None:
        is_open = is_open.filter(organization=organization_id)
    found = is_open.aggregate(
        held=Count("pk", filter=Q(state="held")),
        unknown=Count("pk", filter=Q(state="unknown")),
        oldest_unknown_at=Min("unknown_at"),
    )
    return Unsettled(**found)
