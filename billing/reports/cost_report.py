"""
The cost report: what was settled, by UTC day of admission.

It reads sums, so its time grows with days and groups and not with requests. A request that is not settled
adds nothing, not even a zero: a `"0"` here is final.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import date, timedelta
from typing import Any

from django.db.models import Q, QuerySet, Sum, TextField, Value
from django.db.models.functions import Cast

from billing.models import DailyCost, UnrolledCost
from billing.money import usd
from billing.reports.query import DAY_SECONDS, DIMENSIONS, CostQuery

EPOCH = date(1970, 1, 1)

# Project, key and line item; None where the report does not group by it.
ReportGroup = tuple[str | None, str | None, str | None]


def report_page(query: CostQuery) -> dict[str, Any]:
    """One page of the report, as JSON: a bucket for each day, those without costs included."""
    days = costs_by_day(query)
    next_page = query.next_page()
    return {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": day * DAY_SECONDS,
                "end_time": (day + 1) * DAY_SECONDS,
                "results": [_result(group, amount) for group, amount in days.get(day, ())],
            }
            for day in range(query.first_day, query.page_end_day)
        ],
        "has_more": next_page is not None,
        "next_page": next_page,
    }


def costs_by_day(query: CostQuery) -> dict[int, list[tuple[ReportGroup, int]]]:
    """The settled costs of each day, in nano-USD, by group and in the groups' order."""
    found: defaultdict[str, defaultdict[ReportGroup, int]] = defaultdict(lambda: defaultdict(int))
    ids = ClientIds()
    # One statement, and so one instant: a roll-up that moves costs meanwhile is seen whole or not at all.
    rows = _sums(DailyCost, query).union(_sums(UnrolledCost, query), all=True)
    for day, project, api_key, line_item, amount in rows:
        # PostgreSQL sums whole numbers to a decimal.
        found[day][ids[project], ids[api_key], line_item] += int(amount)
    return {(date.fromisoformat(day) - EPOCH).days: sorted(sums.items()) for day, sums in found.items()}


class ClientIds(dict[str | None, str | None]):
    """A cache from ids as a database writes them to ids as clients see them."""

    def __missing__(self, stored: str | None) -> str | None:
        self[stored] = None if stored is None else str(uuid.UUID(stored))
        return self[stored]


def _sums(model: type[DailyCost] | type[UnrolledCost], query: CostQuery) -> QuerySet[Any, Any]:
    """Sums of one table: rows of a day, the three dimensions, and an amount."""
    wanted = Q(
        organization=query.organization_id,
        day__gte=EPOCH + timedelta(days=query.first_day),
        day__lt=EPOCH + timedelta(days=query.page_end_day),
    )
    if query.project_ids:
        wanted &= Q(project__in=query.project_ids)
    if query.api_key_ids:
        wanted &= Q(api_key__in=query.api_key_ids)
    # As text: to make a date and two uuids for each row would take longer than all the rest.
    columns = {
        f"{name}_text": Cast(name, TextField())
        if name in ("day", *query.group_by)
        else Value(None, TextField())
        for name in ("day", *DIMENSIONS)
    }
    sums: QuerySet[Any, Any] = (
        model.objects.filter(wanted)
        .annotate(**columns)
        .values(*columns)
        .annotate(amount=Sum("amount_nanousd"))
        # A sum that a repair has emptied is no result.
        .alias(count=Sum("lines"))
        .filter(count__gt=0)
        .values_list(*columns, "amount")
    )
    return sums


def _result(group: ReportGroup, amount: int) -> dict[str, Any]:
    project_id, api_key_id, line_item = group
    return {
        "object": "organization.costs.result",
        "amount": {"value": usd(amount), "currency": "usd"},
        "line_item": line_item,
        "project_id": project_id,
        "api_key_id": api_key_id,
    }
