"""An operator fills an organization with made-up costs to measure with, and the books still balance."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from billing.models import Account, CostLine, DailyCost, Reservation, UnrolledCost
from organization.models import Organization
from tests.benchmarks.generated_data import costs
from tests.billing.factories import make_customer
from tests.factories import make_admin_key
from tests.harness.client import ApiClient

pytestmark = pytest.mark.usefixtures("db")
URL = "/v1/organization/costs"


def generate(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(costs.GenerateCosts(), *arguments, "--json", stdout=out, stderr=StringIO())
    made: dict[str, Any] = json.loads(out.getvalue())
    return made


def test_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "BATCH", 1_500)  # some batches, one of them not full

    made = generate("Load", "--lines=10001", "--days=9", "--keys=7", "--projects=3", "--models=2")

    assert (made["requests"], made["lines"]) == (5_000, 10_000)
    assert Reservation.objects.filter(state="settled").count() == 5_000
    assert CostLine.objects.count() == 10_000
    assert not UnrolledCost.objects.exists()
    assert DailyCost.objects.count() == 9 * 7 * 2 * 2
    assert Account.objects.get().held_nanousd == 0


def test_the_report_of_it_is_the_sum_of_its_lines() -> None:
    made = generate("Load", "--lines=20000", "--days=20", "--unrolled")
    owner = Organization.objects.get(pk=made["organization_id"])
    start = int(time.time()) - 21 * 86_400

    page = ApiClient(make_admin_key(owner).value).get(f"{URL}?start_time={start}&limit=180").json

    reported = sum(Decimal(each["amount"]["value"]) for day in page["data"] for each in day["results"])
    added = sum(CostLine.objects.values_list("amount_nanousd", flat=True))
    assert reported * 10**9 == added == Decimal(made["charged_usd"]) * 10**9
    assert UnrolledCost.objects.exists()


def test_nothing_made_up_is_mixed_with_real_charges() -> None:
    customer = make_customer(credit=1)
    generate("Load", "--lines=10")

    for name in ("Load", customer.organization.name):
        with pytest.raises(CommandError, match="used already"):
            generate(name, "--lines=10")


@pytest.mark.parametrize("bad", ["--lines=1", "--lines=200000001", "--days=0", "--keys=0", "--models=21"])
def test_the_bounds(bad: str) -> None:
    with pytest.raises(CommandError, match="must be from"):
        generate("Load", "--lines=10", bad)
