"""
Writes what a correction changed: adjustments, cost lines, sums, the balance and the caps.

Called in a transaction that holds the account's lock, so all of it moves at once or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection
from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.utils import timezone
from msgspec import Struct

from billing.corrections.recharge import Recharge
from billing.models import Account, CapPeriod, Correction, CostAdjustment, CostLine, UnrolledCost
from gateway_site.api.errors import Conflict
from gateway_site.database.bulk_insert import BulkInsert

# Each of them is one statement, however many rows there are: the account is locked meanwhile.
INSERT_ADJUSTMENTS, INSERT_LINES, INSERT_SUMS = map(BulkInsert, (CostAdjustment, CostLine, UnrolledCost))


class AdjustmentEntry(Struct):
    """A new row of CostAdjustment, by its columns."""

    correction_id: uuid.UUID
    organization_id: uuid.UUID
    reservation_id: uuid.UUID
    revision: int
    from_version_id: uuid.UUID
    to_version_id: uuid.UUID
    charged_before_nanousd: int
    charged_after_nanousd: int
    uncollected_nanousd: int
    created_at: datetime


class LineEntry(Struct):
    """A new row of CostLine, by its columns."""

    organization_id: uuid.UUID
    project_id: uuid.UUID
    api_key_id: uuid.UUID
    day: date
    line_item: str
    reservation_id: uuid.UUID
    admitted_at: datetime
    revision: int
    quantity: int
    amount_nanousd: int


class SumEntry(Struct):
    """A new row of UnrolledCost, by its columns: some lines of one key, day and item."""

    organization_id: uuid.UUID
    project_id: uuid.UUID
    api_key_id: uuid.UUID
    day: date
    line_item: str
    quantity: int = 0
    amount_nanousd: int = 0
    lines: int = 0


def write_entries(correction: Correction, organization_id: uuid.UUID, recharges: Sequence[Recharge]) -> None:
    """Add the new charges of one organization's requests to its books."""
    difference = sum(each.difference_nanousd for each in recharges)
    Account.objects.filter(pk=organization_id).update(settled_nanousd=F("settled_nanousd") + difference)
    _count_in_caps(organization_id, recharges)
    lines = _lines(organization_id, recharges)
    now = timezone.now()
    adjustments = [
        AdjustmentEntry(
            correction.pk,
            organization_id,
            each.request.id,
            each.request.revision + 1,
            each.request.version_id,
            each.version_id,
            each.request.charged_nanousd,
            each.charged_nanousd,
            each.uncollected_nanousd,
            now,
        )
        for each in recharges
    ]
    _insert(INSERT_ADJUSTMENTS, adjustments)
    _insert(INSERT_LINES, lines)
    _insert(INSERT_SUMS, _sums(lines))


def _insert(statement: BulkInsert, rows: Sequence[Struct]) -> None:
    with connection.cursor() as cursor:
        if rows and statement.insert(cursor, rows) != len(rows):
            # Not under the account's lock; but if it were, nothing of the page would be kept.
            raise Conflict("Somebody else corrected the same requests at the same time.")


def _lines(organization_id: uuid.UUID, recharges: Sequence[Recharge]) -> list[LineEntry]:
    return [
        LineEntry(
            organization_id,
            each.request.project_id,
            each.request.key_id,
            each.request.admitted_at.astimezone(UTC).date(),
            item,
            each.request.id,
            each.request.admitted_at,
            each.request.revision + 1,
            quantity,
            amount,
        )
        for each in recharges
        for item, (quantity, amount) in each.changes.items()
    ]


def _sums(lines: Iterable[LineEntry]) -> list[SumEntry]:
    """The lines as the report reads them at once, summed by key, day and item."""
    found: dict[tuple[Any, ...], SumEntry] = {}
    for line in lines:
        group = (line.organization_id, line.project_id, line.api_key_id, line.day, line.line_item)
        sums = found.setdefault(group, SumEntry(*group))
        sums.quantity += line.quantity
        sums.amount_nanousd += line.amount_nanousd
        sums.lines += 1
    return list(found.values())


def _count_in_caps(organization_id: uuid.UUID, recharges: Sequence[Recharge]) -> None:
    """Add the differences to every cap's period that counts the requests, whatever its limit."""
    moments = [each.request.admitted_at for each in recharges]
    periods = CapPeriod.objects.filter(
        Q(ends_at=None) | Q(ends_at__gt=min(moments)),
        cap__organization=organization_id,
        starts_at__lte=max(moments),
    ).select_related("cap")
    for period in periods:
        difference = sum(each.difference_nanousd for each in recharges if _counts(period, each))
        if not difference:
            continue
        settled = F("settled_nanousd") + difference
        # What is spent is spent: the ceiling follows, as where a limit is lowered below it.
        CapPeriod.objects.filter(pk=period.pk).update(
            settled_nanousd=settled, ceiling_nanousd=Greatest("ceiling_nanousd", F("held_nanousd") + settled)
        )


def _counts(period: CapPeriod, each: Recharge) -> bool:
    cap, request = period.cap, each.request
    return (
        (cap.project_id is None or cap.project_id == request.project_id)
        and (cap.api_key_id is None or cap.api_key_id == request.key_id)
        and period.starts_at <= request.admitted_at
        and (period.ends_at is None or request.admitted_at < period.ends_at)
    )
