"""Four processes ask for more than there is. Never one too many, and never one too few."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from billing.models import Reservation
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from organization import services as organization_services
from tests.billing.factories import PRICE, SOMEONE, Customer, make_customer, stay_within_a_minute
from tests.billing.ledger_processes import SIZE, LedgerProcesses

REPEATS = 20
ASKED = 200
ROOM = 50
AMOUNT = 7

CAPS = [
    (scope, period) for scope in ("organization", "project", "key") for period in ("day", "month", "total")
]


def order_for(customer: Customer, **options: Any) -> dict[str, Any]:
    return {
        "do": "holds",
        "count": ASKED // SIZE,
        "organization_id": str(customer.organization.pk),
        "project_id": str(customer.project.pk),
        "key_id": str(customer.key.pk),
        "amount": AMOUNT,
        **options,
    }


def test_credit_for_fifty_admits_fifty_of_two_hundred(processes: LedgerProcesses) -> None:
    for _ in range(REPEATS):
        customer = make_customer(credit=ROOM * AMOUNT + AMOUNT - 1)

        outcomes = processes.do(order_for(customer))

        assert outcomes == {"admitted": ROOM, "insufficient_credit": ASKED - ROOM}
        assert customer.available == AMOUNT - 1


@pytest.mark.parametrize(("scope", "period"), CAPS)
def test_a_cap_for_fifty_admits_fifty_of_two_hundred(
    processes: LedgerProcesses, scope: str, period: str
) -> None:
    for _ in range(REPEATS):
        customer = make_customer(credit=ASKED * AMOUNT)
        customer.limit(scope, period, ROOM * AMOUNT)

        outcomes = processes.do(order_for(customer))

        assert outcomes == {"admitted": ROOM, f"{scope}_{period}_cap_exceeded": ASKED - ROOM}


def test_credit_and_a_cap_that_bind_together_admit_fifty(processes: LedgerProcesses) -> None:
    for _ in range(REPEATS):
        customer = make_customer(credit=ROOM * AMOUNT)
        customer.limit("project", "day", ROOM * AMOUNT)

        outcomes = processes.do(order_for(customer))

        assert outcomes == {"admitted": ROOM, "insufficient_credit": ASKED - ROOM}


def test_four_completions_each_need_four_times_the_credit(processes: LedgerProcesses) -> None:
    amount = hold_amount(PRICE, Quantities(completion=4 * AMOUNT))
    for _ in range(REPEATS):
        customer = make_customer(credit=ROOM * AMOUNT)

        outcomes = processes.do(order_for(customer, amount=amount, choices=4))

        assert outcomes == {"admitted": ROOM // 4, "insufficient_credit": ASKED - ROOM // 4}


def test_a_rate_of_fifty_admits_fifty_of_two_hundred(processes: LedgerProcesses) -> None:
    for _ in range(REPEATS):
        customer = make_customer(credit=ASKED * AMOUNT)
        stay_within_a_minute()

        outcomes = processes.do(order_for(customer, limits={"requests_per_minute": ROOM}))

        assert outcomes == {"admitted": ROOM, "rate_limit_exceeded": ASKED - ROOM}


def test_fifty_at_once_admits_fifty_of_two_hundred(processes: LedgerProcesses) -> None:
    for _ in range(REPEATS):
        customer = make_customer(credit=ASKED * AMOUNT)

        outcomes = processes.do(order_for(customer, limits={"concurrency": ROOM}))

        assert outcomes == {"admitted": ROOM, "concurrency_exceeded": ASKED - ROOM}


def test_credit_granted_in_the_middle_is_used_to_the_last(processes: LedgerProcesses) -> None:
    customer = make_customer(credit=ROOM * AMOUNT)
    grant = threading.Thread(target=customer.grant, args=(ROOM * AMOUNT,))
    processes.send(order_for(customer))
    processes.receive()
    grant.start()
    processes.send({"do": "go"})
    first = sum(answer.get("admitted", 0) for answer in processes.receive())
    grant.join()

    second = processes.do(order_for(customer))["admitted"]

    assert first >= ROOM
    assert first + second == 2 * ROOM


def revoke(customer: Customer) -> None:
    organization_services.revoke_key(key=customer.key, actor=SOMEONE)


def suspend(customer: Customer) -> None:
    organization_services.suspend_key(key=customer.key, actor=SOMEONE)


def archive(customer: Customer) -> None:
    organization_services.archive_project(project=customer.project, actor=SOMEONE)


@pytest.mark.parametrize(
    ("stop", "refusal"),
    [(revoke, "invalid_api_key"), (suspend, "invalid_api_key"), (archive, "project_archived")],
)
def test_nothing_is_admitted_once_the_key_was_stopped(
    processes: LedgerProcesses, stop: Callable[[Customer], None], refusal: str
) -> None:
    for _ in range(REPEATS // 4):
        customer = make_customer(credit=10**12)
        mine = Reservation.objects.filter(api_key=customer.key)
        processes.send(order_for(customer, do="hold_until_refused", count=10))
        processes.receive()
        processes.send({"do": "go"})
        while not mine.exists():
            time.sleep(0.001)

        stop(customer)
        admitted_before_it_returned = mine.count()

        outcomes = [answer.keys() for answer in processes.receive()]
        assert mine.count() == admitted_before_it_returned
        assert all(refusal in each for each in outcomes)
