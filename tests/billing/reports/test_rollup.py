"""Costs are moved into daily sums, each exactly once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from billing import tasks
from billing.models import CostLine, DailyCost, UnrolledCost
from billing.reports import rollup
from billing.reports.rollup import repair, roll_up
from gateway_site.celery_app import app
from tests.billing.factories import FREE, Customer, make_customer
from tests.billing.reports.helpers import results
from tests.billing.settled_requests import FIRST, Usage, after, settle
from tests.factories import make_admin_key
from tests.harness.client import ApiClient
from tests.harness.isolation.connections import close_connections
from tests.harness.ledger_checks import assert_books_balance

THREADS = 4


def sums(model: Any) -> Counter[tuple[Any, ...]]:
    """The amount of every cell, and its lines."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in model.objects.all():
        cell = (row.organization_id, row.day, row.project_id, row.api_key_id, row.line_item)
        found[*cell, "amount"] += row.amount_nanousd
        found[*cell, "quantity"] += row.quantity
        found[*cell, "lines"] += 1 if model is CostLine else row.lines
    return found


@pytest.fixture
def ours(db: None) -> Customer:
    return make_customer(credit=10**12)


def settle_many(customer: Customer, count: int) -> None:
    for i in range(count):
        settle(Usage(customer, after(i % 3), 1 + i, 1 + i))


def test_a_roll_up_moves_every_cost_into_daily_sums(ours: Customer) -> None:
    settle(Usage(ours, FIRST, 5, 7), Usage(ours, FIRST, 11, 0))
    settle(Usage(ours, FIRST, 100))
    settle(Usage(ours, after(1), 3, price=FREE))

    moved = roll_up()

    assert moved == 4
    assert not UnrolledCost.objects.exists()
    assert list(
        DailyCost.objects.order_by("day", "line_item").values_list(
            "day", "line_item", "quantity", "amount_nanousd", "lines"
        )
    ) == [
        (FIRST, "gpt, completion", 7, 7, 1),
        (FIRST, "gpt, prompt", 116, 116, 3),
        (after(1), "gpt, prompt", 3, 0, 1),
    ]


def test_running_again_changes_nothing(ours: Customer) -> None:
    settle_many(ours, 6)
    roll_up()
    before = sums(DailyCost)

    for _ in range(3):
        tasks.roll_up_costs()

    assert sums(DailyCost) == before == sums(CostLine)


def test_later_costs_are_added_to_the_same_days(ours: Customer) -> None:
    for _ in range(3):
        settle_many(ours, 6)
        roll_up()

    assert sums(DailyCost) == sums(CostLine)
    assert DailyCost.objects.count() == 6


def test_batches_are_bounded(ours: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_many(ours, 10)
    waiting = UnrolledCost.objects.count()

    assert roll_up(limit=0) == 0
    assert roll_up(limit=4) == 4
    assert UnrolledCost.objects.count() == waiting - 4
    monkeypatch.setattr(rollup, "BATCH", 3)
    assert roll_up(limit=5) == 5
    assert roll_up() == waiting - 9
    assert sums(DailyCost) == sums(CostLine)


@pytest.mark.slow
def test_runs_at_the_same_time_share_the_work(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    customer = make_customer(credit=10**12)
    settle_many(customer, 240)
    waiting = UnrolledCost.objects.count()
    # Every batch adds to the same few days: without an order of their own the runs would soon deadlock.
    monkeypatch.setattr(rollup, "BATCH", 12)
    moved: list[int] = []
    start = threading.Barrier(THREADS)

    def run() -> None:
        try:
            start.wait()
            moved.append(roll_up())
        finally:
            close_connections()

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(moved) == THREADS
    assert sum(moved) + roll_up() == waiting
    assert sums(DailyCost) == sums(CostLine)


def test_a_run_leaves_alone_what_another_has_taken(transactional_db: None, is_postgres: bool) -> None:
    if not is_postgres:
        pytest.skip("SQLite has one writer: the second run waits for the first.")
    customer = make_customer(credit=10**12)
    settle(Usage(customer, FIRST, 1))
    settle(Usage(customer, after(1), 2))
    taken, may_end = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with transaction.atomic():
                roll_up(limit=1)
                taken.set()
                may_end.wait(10)
        finally:
            close_connections()

    other = threading.Thread(target=run)
    other.start()
    taken.wait(10)
    moved = roll_up()
    may_end.set()
    other.join()

    assert moved == 1
    assert not UnrolledCost.objects.exists()
    assert sums(DailyCost) == sums(CostLine)


def test_the_rollup_costs_command_says_how_many_rows_it_moved(ours: Customer) -> None:
    settle_many(ours, 4)
    waiting = UnrolledCost.objects.count()

    outcomes = []
    for _ in range(2):
        out = StringIO()
        call_command("rollup_costs", "--json", stdout=out)
        outcomes.append(json.loads(out.getvalue()))

    assert outcomes == [{"rows": waiting, "corrected": 0}, {"rows": 0, "corrected": 0}]


def test_the_schedule_names_tasks_that_exist() -> None:
    app.loader.import_default_modules()

    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values()}

    assert {"billing.tasks.roll_up_costs", "billing.tasks.sweep_reservations"} <= scheduled
    assert scheduled <= set(app.tasks)


# --- sums that a hand has changed --------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["lost", "doubled", "shrunk", "invented"])
def test_a_repair_makes_the_sums_right_again(ours: Customer, harm: str) -> None:
    settle_many(ours, 6)
    roll_up(limit=7)
    cell = DailyCost.objects.order_by("pk")[0]
    match harm:
        case "lost":
            DailyCost.objects.all().delete()
        case "doubled":
            DailyCost.objects.filter(pk=cell.pk).update(amount_nanousd=10**9, lines=99)
        case "shrunk":
            DailyCost.objects.filter(pk=cell.pk).update(amount_nanousd=0, quantity=0)
        case "invented":
            cell.pk, cell.line_item = None, "gpt, nonsense"
            cell.save()
    with pytest.raises(AssertionError, match="rollup_equals_lines"):
        assert_books_balance()

    out = StringIO()
    call_command("rollup_costs", "--repair", "--json", stdout=out)

    assert json.loads(out.getvalue())["corrected"] > 0
    assert_books_balance()
    assert repair() == 0


def test_a_sum_that_was_invented_is_gone_from_the_report(ours: Customer) -> None:
    settle(Usage(ours, FIRST, 5))
    roll_up()
    cell = DailyCost.objects.get()
    cell.pk, cell.line_item = None, "gpt, nonsense"
    cell.save()
    repair()

    found = results(ApiClient(make_admin_key(ours.organization).value), "&group_by=line_item")

    assert [each["line_item"] for each in found[0]] == ["gpt, prompt"]
