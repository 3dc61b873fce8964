"""An organization's costs over some days, as the console shows and exports them: the report's numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from billing.reports.cost_report import EPOCH, ReportGroup, costs_by_day
from billing.reports.query import CostQuery
from billing.reports.read_plan import DAY_SECONDS
from organization.models import Organization, Project, ProjectKey

# Days in one statement of an export: few enough for a process to hold them, whatever was asked for.
STEP_DAYS = 7


@dataclass(frozen=True, slots=True)
class CostRange:
    """Whose costs, over which UTC days, grouped by what. Both days are of the range."""

    organization: Organization
    first_day: date
    last_day: date
    # Some of `query.DIMENSIONS`, in their order.
    group_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DayCost:
    day: date
    group: ReportGroup
    amount_nanousd: int


def totals(cost_range: CostRange) -> list[tuple[ReportGroup, int]]:
    """What each group cost over the whole range, the dearest first. One statement, and so one instant."""
    sums: defaultdict[ReportGroup, int] = defaultdict(int)
    for cost in _costs(cost_range, cost_range.first_day, cost_range.last_day):
        sums[cost.group] += cost.amount_nanousd
    return sorted(sums.items(), key=lambda each: (-each[1], each[0]))


def costs_in_steps(cost_range: CostRange) -> Iterator[list[DayCost]]:
    """Every cost of the range, some days at a time and in their order."""
    first = cost_range.first_day
    while first <= cost_range.last_day:
        last = min(first + timedelta(days=STEP_DAYS - 1), cost_range.last_day)
        yield _costs(cost_range, first, last)
        first = last + timedelta(days=1)


def _costs(cost_range: CostRange, first_day: date, last_day: date) -> list[DayCost]:
    first, end = (first_day - EPOCH).days, (last_day - EPOCH).days + 1
    query = CostQuery(
        cost_range.organization.pk,
        project_ids=frozenset(),
        api_key_ids=frozenset(),
        group_by=cost_range.group_by,
        start_time=first * DAY_SECONDS,
        end_time=end * DAY_SECONDS,
        limit=end - first,
        filters="",
    )
    return [
        DayCost(EPOCH + timedelta(days=day), group, amount)
        for day, costs in sorted(costs_by_day(query).items())
        for group, amount in costs
    ]


class CostNames:
    """What people call the projects and keys of an organization, by id as the report writes it."""

    def __init__(self, cost_range: CostRange) -> None:
        self.projects: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        if "project_id" in cost_range.group_by:
            projects = Project.objects.filter(organization=cost_range.organization)
            self.projects = {str(pk): name for pk, name in projects.values_list("pk", "name")}
        if "api_key_id" in cost_range.group_by:
            keys = ProjectKey.objects.filter(project__organization=cost_range.organization)
            rows = keys.values_list("pk", "name", "redacted_value")
            self.keys = {str(pk): f"{name} ({redacted})" for pk, name, redacted in rows}
