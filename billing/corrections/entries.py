"""
Writes what a correction changed: adjustments, cost lines, sums, the balance and the caps.

Called in a transaction that holds the account's lock, so all of it moves at once or not at all.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date

from django.db.models import F, Q
from django.db.models.functions import Greatest

from billing.corrections.recharge import Recharge
from billing.models import (
    Account,
    CapPeriod,
    Correction,
    CostAdjustment,
    CostLine,
    UnrolledCost,
)

# Project, key, day, line item.
DailySum = tuple[uuid.UUID, uuid.UUID, date, str]


def write_entries(correction: Correction, organization_id: uuid.UUID, recharges: Sequence[Recharge]) -> None:
    """Add the new charges of one organization's requests to its books."""
    difference = sum(each.difference_nanousd for each in recharges)
    Account.objects.filter(pk=organization_id).update(settled_nanousd=F("settled_nanousd") + difference)
    _count_in_caps(organization_id, recharges)
    _add_lines(organization_id, recharges)
    CostAdjustment.objects.bulk_create(
        CostAdjustment(
            correction=correction,
            organization_id=organization_id,
            reservation_id=each.request.id,
            revision=each.request.revision + 1,
            from_version_id=each.request.version_id,
            to_version_id=each.version_id,
            charged_before_nanousd=each.request.charged_nanousd,
            charged_after_nanousd=each.charged_nanousd,
            uncollected_nanousd=each.uncollected_nanousd,
        )
        for each in recharges
    )


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


def _add_lines(organization_id: uuid.UUID, recharges: Sequence[Recharge]) -> None:
    """The lines that differ, and their sums for the report, which shows them at once."""
    lines = []
    sums: defaultdict[DailySum, list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in recharges:
        request = each.request
        day = request.admitted_at.astimezone(UTC).date()
        for item, (quantity, amount) in each.changes.items():
            lines.append(
                CostLine(
                    reservation_id=request.id,
                    organization_id=organization_id,
                    project_id=request.project_id,
                    api_key_id=request.key_id,
                    day=day,
                    admitted_at=request.admitted_at,
                    revision=request.revision + 1,
                    line_item=item,
                    quantity=quantity,
                    amount_nanousd=amount,
                )
            )
            totals = sums[request.project_id, request.key_id, day, item]
            for index, added in enumerate((quantity, amount, 1)):
                totals[index] += added
    CostLine.objects.bulk_create(lines)
    UnrolledCost.objects.bulk_create(
        UnrolledCost(
            organization_id=organization_id,
            project_id=project_id,
            api_key_id=key_id,
            day=day,
            line_item=item,
            quantity=quantity,
            amount_nanousd=amount,
            lines=count,
        )
        for (project_id, key_id, day, item), (quantity, amount, count) in sums.items()
    )
