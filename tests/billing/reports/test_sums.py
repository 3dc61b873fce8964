"""Whatever was settled and corrected, and however it is asked, reports are plain sums that add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.models import CostLine, UnrolledCost
from billing.reports.rollup import roll_up
from organization.models import Project
from tests.billing.factories import Customer, make_customer, make_key
from tests.billing.settled_requests import DAY, FIRST, Usage, midnight, settle
from tests.factories import make_admin_key
from tests.harness.client import ApiClient

URL = "/v1/organization/costs"
DIMENSIONS = ("project_id", "api_key_id", "line_item")
SPAN = 5
KEYS = 3
START = midnight(FIRST)

Group = tuple[str | None, ...]
# A bucket's start and end, and what it has for each group.
Bucket = tuple[int, int, dict[Group, int]]


@dataclass(frozen=True)
class Line:
    admitted_at: datetime
    project_id: str
    api_key_id: str
    line_item: str
    amount: int


# Seconds after START: any, and many at and beside midnight, and many that are the same.
seconds = st.one_of(
    st.integers(0, SPAN * DAY - 1),
    st.builds(lambda day, beside: day * DAY + beside, st.integers(1, SPAN - 1), st.sampled_from([-1, 0, 1])),
    st.integers(0, 2).map(lambda second: 5 * DAY // 2 + second),
)
requests = st.tuples(
    st.integers(0, KEYS - 1),
    st.tuples(seconds, st.sampled_from([0, 1, 500_000, 999_999])),
    st.integers(0, 10**9),
    st.integers(0, 3),
    st.sampled_from(["a", 'd, "\\é']),
)
questions = st.fixed_dictionaries(
    {
        "groups": st.sets(st.sampled_from(DIMENSIONS)),
        "projects": st.sets(st.integers(0, 1)),
        "keys": st.sets(st.integers(0, KEYS - 1)),
        "limit": st.integers(1, SPAN + 2),
        "cuts": st.lists(seconds, min_size=2, max_size=4, unique=True).map(sorted),
    }
)


def lines_of(usage: Usage, admitted_at: datetime) -> list[Line]:
    """A token costs a nano-USD here; a request that used nothing has one line of nothing."""
    customer = usage.customer
    used = [
        (word, count) for word, count in (("prompt", usage.prompt), ("completion", usage.completion)) if count
    ]
    return [
        Line(admitted_at, str(customer.project.pk), str(customer.key.pk), f"{usage.model}, {word}", count)
        for word, count in used or [("prompt", 0)]
    ]


def correct(line: CostLine, share: float) -> Line:
    """Lower a line, down to nothing at most, as a correction does: by another line, of the same admission."""
    less = -int(line.amount_nanousd * share)
    owner = {name: getattr(line, name) for name in ("organization_id", "project_id", "api_key_id")}
    cost = {"day": line.day, "line_item": line.line_item, "quantity": less, "amount_nanousd": less}
    CostLine.objects.create(
        **owner, **cost, reservation_id=line.reservation_id, admitted_at=line.admitted_at, revision=1
    )
    UnrolledCost.objects.create(**owner, **cost, lines=1)
    return Line(line.admitted_at, str(line.project_id), str(line.api_key_id), line.line_item, less)


def expected(lines: list[Line], question: dict[str, Any], start: int, end: int) -> list[Bucket]:
    """The buckets from one second up to another, added up by hand."""
    bounds = [start, *range(start - start % DAY + DAY, end, DAY), end]
    buckets: list[Bucket] = [(first, last, {}) for first, last in pairwise(bounds)]
    for line in lines:
        if (question["project_ids"] and line.project_id not in question["project_ids"]) or (
            question["api_key_ids"] and line.api_key_id not in question["api_key_ids"]
        ):
            continue
        group = tuple(getattr(line, name) if name in question["groups"] else None for name in DIMENSIONS)
        for first, last, sums in buckets:
            if first <= line.admitted_at.timestamp() < last:
                sums[group] = sums.get(group, 0) + line.amount
    return buckets


def reported(api: ApiClient, question: dict[str, Any], start: int, end: int) -> list[Bucket]:
    query = f"start_time={start}&end_time={end}&limit={question['limit']}"
    query += "".join(f"&project_ids={each}" for each in question["project_ids"])
    query += f"&api_key_ids[]={','.join(question['api_key_ids'])}" if question["api_key_ids"] else ""
    query += "".join(f"&group_by={each}" for each in question["groups"])
    found: list[Bucket] = []
    page = {"next_page": ""}
    while page["next_page"] is not None:
        cursor = f"&page={page['next_page']}" if page["next_page"] else ""
        page = api.get(f"{URL}?{query}{cursor}").json
        for bucket in page["data"]:
            groups = {
                tuple(each[name] for name in DIMENSIONS): int(Decimal(each["amount"]["value"]) * 10**9)
                for each in bucket["results"]
            }
            assert len(groups) == len(bucket["results"])
            assert all(amount >= 0 for amount in groups.values())
            found.append((bucket["start_time"], bucket["end_time"], groups))
    return found


def totals(buckets: list[Bucket]) -> Counter[Group]:
    sums: Counter[Group] = Counter()
    for _, _, groups in buckets:
        sums.update(groups)
    return sums


def make_keys() -> tuple[list[Customer], list[str]]:
    owner = make_customer(credit=10**18)
    second = Project.objects.create(organization=owner.organization, name="Second")
    projects = [owner.project, second]
    customers = [
        Customer(owner.organization, projects[i % 2], make_key(projects[i % 2])) for i in range(KEYS)
    ]
    return customers, [str(project.pk) for project in projects]


def settle_all(history: list[Any], customers: list[Customer]) -> list[Line]:
    lines: list[Line] = []
    for (key, (second, microsecond), prompt, completion, model), rolled in history:
        moment = datetime.fromtimestamp(START + second, UTC) + timedelta(microseconds=microsecond)
        usage = Usage(customers[key], moment.date(), prompt, completion, model)
        settle(usage, clock=moment.time())
        lines += lines_of(usage, moment)
        if rolled > 3:
            roll_up(limit=rolled)
    return lines


def assert_adds_up(api: ApiClient, question: dict[str, Any], lines: list[Line]) -> None:
    """Ask for adjacent windows, and for all of them as one."""
    cuts = [START + cut for cut in question["cuts"]]
    parts: list[Bucket] = []
    for start, end in pairwise(cuts):
        found = reported(api, question, start, end)
        assert found == expected(lines, question, start, end)
        parts += found
    whole = reported(api, question | {"limit": 180}, cuts[0], cuts[-1])
    assert whole == expected(lines, question, cuts[0], cuts[-1])
    assert totals(whole) == totals(parts)


@pytest.mark.slow
@pytest.mark.usefixtures("db")
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    history=st.lists(st.tuples(requests, st.integers(0, 6)), max_size=10),
    corrections=st.lists(st.floats(0, 1), max_size=3),
    asked=st.lists(questions, min_size=1, max_size=2),
)
def test_reports_are_plain_sums_that_add_up(
    history: list[Any], corrections: list[float], asked: list[dict[str, Any]]
) -> None:
    customers, projects = make_keys()
    lines = settle_all(history, customers)
    organization = customers[0].organization
    api = ApiClient(make_admin_key(organization).value)
    # Corrections are written past the ledger here, whose balance would not follow: they are taken back.
    with transaction.atomic():
        originals = CostLine.objects.filter(organization=organization).order_by("pk")
        lines += [correct(line, share) for line, share in zip(originals, corrections, strict=False)]
        for question in asked:
            chosen = {
                "project_ids": [projects[i] for i in question["projects"]],
                "api_key_ids": [str(customers[i].key.pk) for i in question["keys"]],
            }
            assert_adds_up(api, question | chosen, lines)
        transaction.set_rollback(True)
