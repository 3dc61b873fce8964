"""Whatever was settled and however it is asked, the report is the plain sum."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.reports.rollup import roll_up
from organization.models import Project
from tests.billing.factories import Customer, make_customer, make_key
from tests.billing.settled_requests import DAY, FIRST, Usage, after, midnight, settle
from tests.factories import make_admin_key
from tests.harness.client import ApiClient

URL = "/v1/organization/costs"
DIMENSIONS = ("project_id", "api_key_id", "line_item")
SPAN = 8
KEYS = 4


@dataclass(frozen=True)
class Line:
    day: date
    project_id: str
    api_key_id: str
    line_item: str
    amount: int


requests = st.tuples(
    st.integers(0, KEYS - 1),
    st.integers(0, SPAN - 1),
    st.integers(0, 10**9),
    st.integers(0, 3),
    st.sampled_from(["a", "b, c", 'd"\\é']),
)
questions = st.fixed_dictionaries(
    {
        "groups": st.sets(st.sampled_from(DIMENSIONS)),
        "projects": st.sets(st.integers(0, 1)),
        "keys": st.sets(st.integers(0, KEYS - 1)),
        "limit": st.integers(1, SPAN + 2),
        "start": st.integers(0, SPAN * DAY - 1),
        "length": st.integers(1, SPAN * DAY),
    }
)


def lines_of(usage: Usage) -> list[Line]:
    """A token costs a nano-USD here; a request that used nothing has one line of nothing."""
    customer = usage.customer
    used = [
        (word, count) for word, count in (("prompt", usage.prompt), ("completion", usage.completion)) if count
    ]
    return [
        Line(usage.day, str(customer.project.pk), str(customer.key.pk), f"{usage.model}, {word}", count)
        for word, count in used or [("prompt", 0)]
    ]


def expected(lines: list[Line], question: dict[str, Any], projects: list[str], keys: list[str]) -> list[Any]:
    first = (midnight(FIRST) + question["start"]) // DAY
    last = (midnight(FIRST) + question["start"] + question["length"] - 1) // DAY
    sums: defaultdict[int, Counter[tuple[str | None, ...]]] = defaultdict(Counter)
    for line in lines:
        if (not projects or line.project_id in projects) and (not keys or line.api_key_id in keys):
            group = tuple(getattr(line, name) if name in question["groups"] else None for name in DIMENSIONS)
            sums[midnight(line.day) // DAY][group] += line.amount
    return [(day * DAY, dict(sums[day])) for day in range(first, last + 1)]


def reported(api: ApiClient, question: dict[str, Any], projects: list[str], keys: list[str]) -> list[Any]:
    start = midnight(FIRST) + question["start"]
    query = f"start_time={start}&end_time={start + question['length']}&limit={question['limit']}"
    query += "".join(f"&project_ids={each}" for each in projects)
    query += f"&api_key_ids[]={','.join(keys)}" if keys else ""
    query += "".join(f"&group_by={each}" for each in question["groups"])
    found, page = [], {"next_page": ""}
    while page["next_page"] is not None:
        cursor = f"&page={page['next_page']}" if page["next_page"] else ""
        page = api.get(f"{URL}?{query}{cursor}").json
        for bucket in page["data"]:
            groups = {
                tuple(each[name] for name in DIMENSIONS): int(Decimal(each["amount"]["value"]) * 10**9)
                for each in bucket["results"]
            }
            assert len(groups) == len(bucket["results"])
            found.append((bucket["start_time"], groups))
    return found


def cast_of_keys() -> tuple[list[Customer], list[str]]:
    owner = make_customer(credit=10**18)
    second = Project.objects.create(organization=owner.organization, name="Second")
    projects = [owner.project, second]
    customers = [
        Customer(owner.organization, projects[i % 2], make_key(projects[i % 2])) for i in range(KEYS)
    ]
    return customers, [str(project.pk) for project in projects]


@pytest.mark.slow
@pytest.mark.usefixtures("db")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    history=st.lists(st.tuples(requests, st.integers(0, 6)), max_size=12),
    asked=st.lists(questions, min_size=1, max_size=4),
)
def test_the_report_is_the_plain_sum(history: list[Any], asked: list[dict[str, Any]]) -> None:
    customers, projects = cast_of_keys()
    lines: list[Line] = []
    for (key, day, prompt, completion, model), rolled in history:
        usage = Usage(customers[key], after(day), prompt, completion, model)
        settle(usage)
        lines += lines_of(usage)
        if rolled > 3:
            roll_up(limit=rolled)
    api = ApiClient(make_admin_key(customers[0].organization).value)

    for question in asked:
        chosen = [projects[i] for i in question["projects"]]
        keys = [str(customers[i].key.pk) for i in question["keys"]]
        assert reported(api, question, chosen, keys) == expected(lines, question, chosen, keys)
