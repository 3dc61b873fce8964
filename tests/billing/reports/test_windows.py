"""An administrator asks for costs from one second up to another."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import UTC, datetime
from datetime import time as clock_time
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from billing.corrections.rerate import rerate
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from billing.reports import cost_report
from billing.reports.query import CostQuery
from billing.reports.rollup import roll_up
from tests.benchmarks.generated_data.costs import GenerateCosts
from tests.billing.corrections import priced_requests
from tests.billing.corrections.priced_requests import UsedAt, add_card, first_day, scope_of
from tests.billing.factories import SOMEONE, Customer, make_customer
from tests.billing.reports.helpers import START, URL
from tests.billing.settled_requests import DAY, Usage, after, settle
from tests.factories import make_admin_key
from tests.harness.client import ApiClient
from tests.harness.isolation.connections import close_connections

NOON = START + DAY // 2


@pytest.fixture
def ours(db: None) -> Customer:
    return make_customer(credit=10**12)


@pytest.fixture
def api(ours: Customer) -> ApiClient:
    return ApiClient(make_admin_key(ours.organization).value)


def buckets(api: ApiClient, start: int, end: int, query: str = "") -> list[tuple[int, int, str | None]]:
    """Each bucket's start, end and amount, which is None where it has no result."""
    answer = api.get(f"{URL}?start_time={start}&end_time={end}&limit=180{query}")
    assert answer.status == 200, answer.body
    return [
        (
            bucket["start_time"],
            bucket["end_time"],
            bucket["results"][0]["amount"]["value"] if bucket["results"] else None,
        )
        for bucket in answer.json["data"]
    ]


def settle_at(customer: Customer, second: int, amount: int, *, microsecond: int = 0) -> None:
    moment = datetime.fromtimestamp(second, UTC).replace(microsecond=microsecond)
    settle(Usage(customer, moment.date(), amount), clock=moment.time())


def report_of(organization_id: uuid.UUID, start: int, end: int) -> CostQuery:
    return CostQuery(
        organization_id,
        project_ids=frozenset(),
        api_key_ids=frozenset(),
        group_by=(),
        start_time=start,
        end_time=end,
        limit=7,
        filters="",
    )


def test_a_report_of_one_hour_has_the_costs_of_that_hour(api: ApiClient, ours: Customer) -> None:
    settle_at(ours, NOON - 1, 1)
    settle_at(ours, NOON + 1800, 2)
    settle_at(ours, NOON + 3600, 4)

    assert buckets(api, NOON, NOON + 3600) == [(NOON, NOON + 3600, "0.000000002")]


def test_the_start_is_in_the_report_and_the_end_is_not(api: ApiClient, ours: Customer) -> None:
    settle_at(ours, NOON - 1, 1, microsecond=999_999)
    settle_at(ours, NOON, 2)
    settle_at(ours, NOON, 4, microsecond=999_999)
    settle_at(ours, NOON + 1, 8)

    assert buckets(api, NOON, NOON + 1) == [(NOON, NOON + 1, "0.000000006")]


def test_buckets_are_days_cut_off_at_the_bounds(api: ApiClient, ours: Customer) -> None:
    settle(*(Usage(ours, after(day), 2**day) for day in range(3)), clock=clock_time(12))

    assert buckets(api, NOON + 1, NOON + 2 * DAY) == [
        (NOON + 1, START + DAY, None),
        (START + DAY, START + 2 * DAY, "0.000000002"),
        (START + 2 * DAY, NOON + 2 * DAY, None),
    ]
    assert buckets(api, NOON, NOON + 2 * DAY + 1)[::2] == [
        (NOON, START + DAY, "0.000000001"),
        (START + 2 * DAY, NOON + 2 * DAY + 1, "0.000000004"),
    ]


def test_adjacent_reports_add_up_with_and_without_roll_ups(api: ApiClient, ours: Customer) -> None:
    settle_at(ours, NOON - 60, 1)
    roll_up()
    settle_at(ours, NOON, 2)
    settle_at(ours, START + DAY, 4)

    for _ in range(2):
        parts = [*buckets(api, START, NOON), *buckets(api, NOON, START + 2 * DAY)]
        assert parts == [
            (START, NOON, "0.000000001"),
            (NOON, START + DAY, "0.000000002"),
            (START + DAY, START + 2 * DAY, "0.000000004"),
        ]
        assert buckets(api, START, START + DAY)[0][2] == "0.000000003"
        roll_up()


def test_a_part_of_a_day_without_settled_costs_has_no_result(api: ApiClient, ours: Customer) -> None:
    """Also where that is found by taking the rest of the day off its sum."""
    settle_at(ours, START + 5, 7)
    roll_up()

    assert buckets(api, START + 6, START + DAY) == [(START + 6, START + DAY, None)]
    assert buckets(api, START, START + 5) == [(START, START + 5, None)]


def test_nothing_of_a_stranger_is_in_a_part_of_a_day(api: ApiClient, ours: Customer) -> None:
    theirs = make_customer(credit=10**12)
    settle_at(theirs, NOON, 1_000)
    settle_at(ours, NOON, 1)
    settle_at(ours, NOON + 7200, 2)

    assert buckets(api, NOON, NOON + 60) == [(NOON, NOON + 60, "0.000000001")]
    assert buckets(api, START, NOON + 60) == [(START, NOON + 60, "0.000000001")]
    assert buckets(api, NOON + 60, START + DAY) == [(NOON + 60, START + DAY, "0.000000002")]


def test_a_correction_is_in_the_second_of_the_request_that_it_corrects(
    transactional_db: None, api: ApiClient, ours: Customer
) -> None:
    noon = int(first_day().timestamp()) + DAY // 2
    wrong = add_card(PriceCard.flat(prompt=20_000, completion=0))
    moments = (datetime.fromtimestamp(noon + after, UTC) for after in (0, 1))
    priced_requests.settle_at([ours], wrong, *(UsedAt(each, Quantities(prompt=100)) for each in moments))
    add_card(PriceCard.flat(prompt=2_000, completion=0))

    corrected = rerate(scope_of(ends_at=datetime.fromtimestamp(noon + 1, UTC)), actor=SOMEONE)

    assert corrected.changed == 1
    for _ in range(2):
        assert buckets(api, noon, noon + 1) == [(noon, noon + 1, "0.0000002")]
        assert buckets(api, noon + 1, noon + 2) == [(noon + 1, noon + 2, "0.000002")]
        assert buckets(api, noon - 1, noon - 1 + DAY)[0][2] == "0.0000022"
        roll_up()


def test_pages_keep_the_bounds_of_the_whole_report(api: ApiClient, ours: Customer) -> None:
    settle(*(Usage(ours, after(day), 1 + day) for day in range(4)), clock=clock_time(12))
    start, end = NOON - 1, NOON + 3 * DAY
    whole = buckets(api, start, end)
    found: list[Any] = []
    cursor = ""
    while not found or cursor:
        page = api.get(f"{URL}?start_time={start}&end_time={end}&limit=2{cursor}").json
        found += [(each["start_time"], each["end_time"]) for each in page["data"]]
        cursor = f"&page={page['next_page']}" if page["next_page"] else ""

    assert found == [(first, last) for first, last, _ in whole]
    assert found[0][0] == start
    assert found[-1][1] == end
    assert [amount for _, _, amount in whole] == ["0.000000001", "0.000000002", "0.000000003", None]


def test_a_report_without_an_end_has_the_second_that_is_running(
    api: ApiClient, ours: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = START + DAY + 3600
    settle_at(ours, now - DAY, 1)
    settle_at(ours, now, 2, microsecond=999_999)
    settle_at(ours, now + 1, 4)
    monkeypatch.setattr("billing.reports.query.time.time", lambda: now + 0.5)
    target = f"{URL}?start_time={now - DAY}&limit=1"

    first = api.get(target).json
    # The end stays where it was when the first page was read.
    monkeypatch.setattr("billing.reports.query.time.time", lambda: now + 7200.0)
    second = api.get(f"{target}&page={first['next_page']}").json

    (bucket,) = second["data"]
    assert (bucket["start_time"], bucket["end_time"]) == (START + DAY, now + 1)
    assert bucket["results"][0]["amount"]["value"] == "0.000000002"
    assert first["data"][0]["results"][0]["amount"]["value"] == "0.000000001"
    assert second["next_page"] is None


def test_a_report_of_the_future_is_empty(api: ApiClient) -> None:
    start = int(time.time()) + 10 * DAY

    assert buckets(api, start, start + 60) == [(start, start + 60, None)]


def test_the_costs_of_parts_of_days_are_read_in_one_statement(
    ours: Customer, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settle_at(ours, NOON, 1)
    roll_up()
    settle_at(ours, NOON + 2 * DAY, 2)
    query = report_of(ours.organization.pk, START + 60, NOON + 2 * DAY + 1)

    # Two would see two moments, and a roll-up between them would count costs twice or not at all.
    with django_assert_num_queries(1):
        found = cost_report.costs_by_day(query)

    assert {day: costs for day, costs in found.items() if costs} == {
        START // DAY: [((None, None, None), 1)],
        START // DAY + 2: [((None, None, None), 2)],
    }


@pytest.mark.slow
def test_parts_of_days_stay_the_same_while_costs_are_rolled_up(transactional_db: None) -> None:
    customer = make_customer(credit=10**12)
    for i in range(60):
        settle_at(customer, START + i * 2400, 1 + i)
    # The first day from its sum less its first hour, the last one from its lines.
    query = report_of(customer.organization.pk, START + 3600, START + DAY + 7200)
    before = cost_report.costs_by_day(query)
    has_ended = threading.Event()

    def run() -> None:
        try:
            while roll_up(limit=1):
                pass
        finally:
            has_ended.set()
            close_connections()

    moving = threading.Thread(target=run)
    moving.start()
    seen = [cost_report.costs_by_day(query)]
    while not has_ended.is_set():
        seen.append(cost_report.costs_by_day(query))
    moving.join()

    assert sum(amount for costs in before.values() for _, amount in costs) == sum(range(3, 40))
    assert all(each == before for each in seen)


# --- speed -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_part_of_a_day_is_found_by_an_index(db: None, is_postgres: bool) -> None:
    days = 40
    out = StringIO()
    call_command(GenerateCosts(), "Large", "--json", lines=20_000, days=days, stdout=out, stderr=StringIO())
    with connection.cursor() as cursor:
        if is_postgres:
            # As autovacuum does by itself.
            cursor.execute("SELECT brin_summarize_new_values('cost_line_by_time')")
        cursor.execute("ANALYZE")
    noon = (int(time.time()) // DAY - days // 2) * DAY + DAY // 2
    organization_id = uuid.UUID(json.loads(out.getvalue())["organization_id"])

    plan = cost_report.cost_rows(report_of(organization_id, noon, noon + 3600)).explain()

    assert "cost_line_by_time" in plan
    assert "Seq Scan on billing_costline" not in plan
    assert "SCAN billing_costline" not in plan
