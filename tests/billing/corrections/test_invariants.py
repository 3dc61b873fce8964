"""Books of corrections that were changed by hand are found out."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from django.db import transaction
from django.db.models import F

from billing.corrections.rerate import rerate
from billing.ledger.invariants import audit
from billing.models import Account, CapPeriod, CostAdjustment, CostLine, Reservation
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from tests.billing.corrections.priced_requests import (
    UsedAt,
    add_card,
    first_day,
    hold_at,
    scope_of,
    settle_at,
)
from tests.billing.factories import SOMEONE, Customer, make_customer


@pytest.fixture
def corrected(transactional_db: None) -> uuid.UUID:
    """A request that was corrected once, of a customer with a limit."""
    customer = make_customer(credit=10**9)
    customer.limit("organization", "total", 10**9)
    (identifier,) = settle_at(
        [customer],
        add_card(PriceCard.flat(prompt=2_000, completion=0)),
        UsedAt(first_day(), Quantities(prompt=100)),
    )
    add_card(PriceCard.flat(prompt=1_000, completion=0))
    rerate(scope_of(), actor=SOMEONE)
    return identifier


def add_adjustment(corrected: uuid.UUID, **changes: object) -> None:
    """One more adjustment, that changes nothing and follows from the last."""
    last = CostAdjustment.objects.get(reservation=corrected)
    values = {
        "correction_id": last.correction_id,
        "organization_id": last.organization_id,
        "reservation_id": corrected,
        "revision": 2,
        "from_version_id": last.to_version_id,
        "to_version_id": last.from_version_id,
        "charged_before_nanousd": 100,
        "charged_after_nanousd": 100,
    }
    CostAdjustment.objects.create(**{**values, **changes})


def add_line(reservation_id: uuid.UUID, revision: int) -> None:
    line = CostLine.objects.get(reservation=reservation_id, revision=0)
    line.pk, line.revision, line.amount_nanousd, line.quantity = None, revision, 5, 0
    line.save(force_insert=True)


def charge_of_another(reservation_id: uuid.UUID) -> None:
    """An adjustment in another organization's books."""
    add_adjustment(reservation_id, organization_id=make_customer().organization.pk)


def adjust_an_open_request(reservation_id: uuid.UUID) -> None:
    row = Reservation.objects.get(pk=reservation_id)
    customer = Customer(row.organization, row.project, row.api_key)
    version = row.price_version
    (hold,) = hold_at([customer], version, UsedAt(first_day(), Quantities(prompt=100)))
    # With what would follow from its charge, if it had one.
    add_adjustment(reservation_id, reservation_id=hold.id, revision=1, from_version_id=version.pk)


# By name, what somebody did and which invariants say so.
BREAKS: dict[str, tuple[Callable[[uuid.UUID], object], set[str]]] = {
    "a balance without the correction": (
        lambda _: Account.objects.update(settled_nanousd=F("settled_nanousd") + 100),
        {"settled_equals_charges"},
    ),
    "a limit without the correction": (
        lambda _: CapPeriod.objects.update(settled_nanousd=F("settled_nanousd") + 100),
        {"caps_mirror_reservations"},
    ),
    "a difference that nobody was charged": (
        lambda each: add_adjustment(each, charged_after_nanousd=120),
        {"settled_equals_charges", "caps_mirror_reservations", "lines_equal_charge", "adjustments_chain"},
    ),
    "a line without an adjustment": (
        lambda each: add_line(each, 2),
        {"lines_equal_charge", "adjustments_chain", "rollup_equals_lines"},
    ),
    "a revision that is left out": (
        lambda each: add_adjustment(each, revision=3),
        {"adjustments_chain"},
    ),
    "an adjustment of what was not charged": (
        lambda each: add_adjustment(each, charged_before_nanousd=90, charged_after_nanousd=90),
        {"adjustments_chain"},
    ),
    "an adjustment from a version that was not charged by": (
        lambda each: add_adjustment(each, from_version_id=uuid.uuid4()),
        {"adjustments_chain"},
    ),
    "an adjustment of a request that is not there": (
        lambda each: add_adjustment(each, reservation_id=uuid.uuid4(), revision=1),
        {"adjustments_chain"},
    ),
    "an adjustment of a request that was not charged": (
        adjust_an_open_request,
        {"lines_equal_charge", "nothing_orphaned"},
    ),
    "an adjustment in the books of another": (charge_of_another, {"adjustments_chain"}),
}


def broken() -> set[str]:
    return {check.invariant.name for check in audit() if check.count}


@pytest.mark.parametrize("name", BREAKS)
def test_corrections_that_do_not_add_up_are_found(corrected: uuid.UUID, name: str) -> None:
    assert broken() == set()
    change, found = BREAKS[name]

    with transaction.atomic():
        change(corrected)
        assert broken() == found
        transaction.set_rollback(True)
