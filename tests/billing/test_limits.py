"""What an operator sets: credit and spending limits, while requests run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from billing import services
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, Settle
from billing.models import Account, CapPeriod, CreditGrant, SpendingCap
from gateway_site.api.errors import InvalidRequest, SpendingCapExceeded
from organization.models import AuditEvent
from tests.billing.factories import SOMEONE, Customer, used


def spend(ledger: Ledger, customer: Customer, amount: int) -> None:
    hold = ledger.call(customer.request(amount))
    assert isinstance(hold, Hold)
    ledger.call(Settle(hold.id, hold.organization_id, used(amount)))


@pytest.mark.parametrize("period", ["day", "month", "total"])
def test_a_new_limit_counts_what_was_spent_and_held_before_it(
    ledger: Ledger, acme: Customer, period: str
) -> None:
    other = acme.another_key()
    spend(ledger, acme, 100)
    spend(ledger, other, 40)
    ledger.call(acme.request(30))
    lost = ledger.call(acme.request(7))
    assert isinstance(lost, Hold)
    ledger.call(MarkUnknown(lost.id, lost.organization_id))

    acme.limit("key", period, 500)
    acme.limit("project", period, 500)

    by_key, by_project = CapPeriod.objects.order_by("cap_id")
    assert (by_key.held_nanousd, by_key.settled_nanousd) == (37, 100)
    assert (by_project.held_nanousd, by_project.settled_nanousd) == (37, 140)


def test_a_limit_below_what_is_used_stops_new_requests_and_no_running_ones(
    ledger: Ledger, acme: Customer
) -> None:
    acme.limit("organization", "total", 500)
    running = ledger.call(acme.request(300))
    assert isinstance(running, Hold)

    acme.limit("organization", "total", 100)

    with pytest.raises(SpendingCapExceeded) as refused:
        ledger.call(acme.request(1))
    assert "$0 is left" in refused.value.message
    ledger.call(Settle(running.id, running.organization_id, used(300)))
    acme.limit("organization", "total", 301)
    spend(ledger, acme, 1)


def test_every_limit_binds(ledger: Ledger, acme: Customer) -> None:
    acme.limit("organization", "month", 300)
    acme.limit("project", "day", 200)
    acme.limit("key", "total", 100)

    with pytest.raises(SpendingCapExceeded, match="of the key"):
        ledger.call(acme.request(101))
    spend(ledger, acme, 100)
    other = acme.another_key()
    with pytest.raises(SpendingCapExceeded, match="of the project"):
        ledger.call(other.request(101))
    spend(ledger, other, 100)


def test_a_limit_that_was_removed_no_longer_binds(ledger: Ledger, acme: Customer) -> None:
    acme.limit("key", "day", 10)
    hold = ledger.call(acme.request(10))
    assert isinstance(hold, Hold)

    services.remove_spending_limit(cap=SpendingCap.objects.get(), actor=SOMEONE)

    ledger.call(acme.request(500))
    ledger.call(Settle(hold.id, hold.organization_id, used(10)))
    assert AuditEvent.objects.filter(action="spending_limit.remove").exists()


def test_a_wrong_period_or_amount_is_refused(acme: Customer) -> None:
    for period, limit in (("week", 1), ("day", -1), ("day", 2**63)):
        with pytest.raises(InvalidRequest):
            services.set_spending_limit(
                scope=acme.organization, period=period, limit_nanousd=limit, actor=SOMEONE
            )


@pytest.mark.slow
def test_grants_made_at_once_all_count(acme: Customer) -> None:
    def grant(amount: int) -> None:
        try:
            acme.grant(amount)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(grant, range(1, 41)))

    assert Account.objects.get().granted_nanousd == 1_000 + sum(range(1, 41))
    assert CreditGrant.objects.count() == 41


@pytest.mark.slow
def test_limits_set_while_requests_run_count_each_of_them_once(ledger: Ledger, acme: Customer) -> None:
    """The fixture that checks the books after every test is what judges this one."""

    def run(index: int) -> None:
        try:
            if index % 5 == 0:
                acme.limit("key", ("day", "month", "total")[index % 3], 600 + index)
            else:
                spend(ledger, acme, 2)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(100)))

    assert {each.settled_nanousd for each in CapPeriod.objects.all()} == {160}
