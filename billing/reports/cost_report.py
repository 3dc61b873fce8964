"""
The cost report: what was settled, by UTC day of admission.

It reads sums, so its time grows with days and groups and not with requests; only where it begins or ends
within a day are lines of that day read too. A request that is not settled adds nothing, not even a zero: a
`"0"` here is final.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum, TextField, Value
from django.db.models.functions import Cast

from billing.models import CostLine, DailyCost, UnrolledCost
from billing.money import usd
from billing.reports.query import DIMENSIONS, CostQuery
from billing.reports.read_plan import Span, read_plan

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
            _bucket(*query.bucket_bounds(day), days.get(day, []))
            for day in range(query.first_day, query.page_end_day)
        ],
        "has_more": next_page is not None,
        "next_page": next_page,
    }


def costs_by_day(query: CostQuery) -> dict[int, list[tuple[ReportGroup, int]]]:
    """The settled costs of each day, in nano-USD, by group and in the groups' order."""
    amounts: defaultdict[str, defaultdict[ReportGroup, int]] = defaultdict(lambda: defaultdict(int))
    counts: defaultdict[str, defaultdict[ReportGroup, int]] = defaultdict(lambda: defaultdict(int))
    ids = ClientIds()
    for day, project, api_key, line_item, amount, lines in cost_rows(query):
        group = ids[project], ids[api_key], line_item
        # PostgreSQL sums whole numbers to a decimal.
        amounts[day][group] += int(amount)
        counts[day][group] += int(lines)
    return {
        # Where all lines are taken off, or a repair has emptied a sum, there is no result.
        (date.fromisoformat(day) - EPOCH).days: sorted(
            each for each in sums.items() if counts[day][each[0]] > 0
        )
        for day, sums in amounts.items()
    }


class ClientIds(dict[str | None, str | None]):
    """A cache from ids as a database writes them to ids as clients see them."""

    def __missing__(self, stored: str | None) -> str | None:
        self[stored] = None if stored is None else str(uuid.UUID(stored))
        return self[stored]


def cost_rows(query: CostQuery) -> QuerySet[Any, Any]:
    """Rows to be added up: a day, the three dimensions, an amount and a number of lines."""
    plan = read_plan(query.start_time, query.page_end_time, now=int(time.time()))
    days = Q(
        day__gte=EPOCH + timedelta(days=plan.first_day),
        day__lt=EPOCH + timedelta(days=plan.end_day),
    )
    parts = [
        _sums(UnrolledCost.objects.filter(days), query, Sum("amount_nanousd"), Sum("lines")),
        *(_sums(_within(span), query, Sum("amount_nanousd"), Count("pk")) for span in plan.added),
        *(_sums(_within(span), query, -Sum("amount_nanousd"), -Count("pk")) for span in plan.taken_off),
    ]
    # One statement, and so one instant: a roll-up that moves costs meanwhile is seen whole or not at all.
    rows = _sums(DailyCost.objects.filter(days), query, Sum("amount_nanousd"), Sum("lines"))
    return rows.union(*parts, all=True)


def _within(span: Span) -> QuerySet[CostLine]:
    start, end = (datetime.fromtimestamp(each, UTC) for each in span)
    return CostLine.objects.filter(admitted_at__gte=start, admitted_at__lt=end)


def _sums(costs: QuerySet[Any], query: CostQuery, amount: Any, lines: Any) -> QuerySet[Any, Any]:
    """Sums of the costs that a report asks for, by day and dimensions."""
    wanted = Q(organization=query.organization_id)
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
        costs.filter(wanted)
        .annotate(**columns)
        .values(*columns)
        .annotate(amount=amount, count=lines)
        .values_list(*columns, "amount", "count")
    )
    return sums


def _bucket(start_time: int, end_time: int, costs: list[tuple[ReportGroup, int]]) -> dict[str, Any]:
    return {
        "object": "bucket",
        "start_time": start_time,
        "end_time": end_time,
        "results": [_result(group, amount) for group, amount in costs],
    }


def _result(group: ReportGroup, amount: int) -> dict[str, Any]:
    project_id, api_key_id, line_item = group
    return {
        "object": "organization.costs.result",
        "amount": {"value": usd(amount), "currency": "usd"},
        "line_item": line_item,
        "project_id": project_id,
        "api_key_id": api_key_id,
    }
