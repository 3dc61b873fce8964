from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from billing.ledger.ledger import Ledger
from billing.ledger.operations import (
    Heartbeat,
    Hold,
    MarkDispatched,
    MarkUnknown,
    Release,
    ReservationOutcome,
    Settle,
)
from billing.models import (
    Account,
    CapPeriod,
    ChargeBasis,
    CostLine,
    CreditGrant,
    Reservation,
    ReservationState,
    UnrolledCost,
)
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from gateway_site.api.errors import NotFound, Unavailable
from tests.billing.factories import Customer, reservation, used, version_of


def take(ledger: Ledger, customer: Customer, amount: int = 100, **options: object) -> Hold:
    hold = ledger.call(customer.request(amount, **options))
    assert isinstance(hold, Hold)
    return hold


def settle(
    ledger: Ledger, hold: Hold, tokens: int, basis: ChargeBasis = ChargeBasis.USAGE
) -> ReservationOutcome:
    outcome = ledger.call(Settle(hold.id, hold.organization_id, used(tokens), basis))
    assert isinstance(outcome, ReservationOutcome)
    return outcome


def test_it_works(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    outcome = settle(ledger, hold, 30)

    assert outcome == ReservationOutcome(ReservationState.SETTLED, 30, 0, won=True)
    assert acme.available == 970
    row = reservation(hold)
    assert (row.state, row.basis, row.charged_nanousd) == ("settled", "usage", 30)


def test_the_lines_tell_what_was_used(ledger: Ledger, acme: Customer) -> None:
    card = PriceCard.flat(prompt=2_000, cached=1_000, completion=3_000, image=4_000, request=5_000)
    hold = take(ledger, acme, 900, version=version_of(card))

    ledger.call(
        Settle(hold.id, hold.organization_id, Quantities(prompt=10, cached=4, completion=7, images=1))
    )

    lines = CostLine.objects.order_by("id").values_list("line_item", "quantity", "amount_nanousd")
    assert list(lines) == [
        ("gpt, prompt", 6, 12),
        ("gpt, cached prompt", 4, 4),
        ("gpt, completion", 7, 21),
        ("gpt, image", 1, 4),
        ("gpt, request", 1, 5),
    ]
    line = CostLine.objects.latest("id")
    assert (line.organization, line.project, line.api_key) == (acme.organization, acme.project, acme.key)
    assert line.day == hold.admitted_at.astimezone(UTC).date()
    assert UnrolledCost.objects.count() == 5


def test_a_second_ending_changes_nothing_and_learns_the_first(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)
    settle(ledger, hold, 30)

    again = settle(ledger, hold, 99)
    released = ledger.call(Release(hold.id, hold.organization_id))

    assert again == released == ReservationOutcome(ReservationState.SETTLED, 30, 0, won=False)
    assert acme.available == 970


def test_both_endings_in_one_batch_have_one_winner(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    answers = ledger.call_all(
        [
            Settle(hold.id, hold.organization_id, used(10)),
            Release(hold.id, hold.organization_id),
            Settle(hold.id, hold.organization_id, used(20)),
        ]
    )

    assert [answer.won for answer in answers if isinstance(answer, ReservationOutcome)] == [
        True,
        False,
        False,
    ]


def test_a_released_hold_costs_nothing_and_has_no_line(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    ledger.call(Release(hold.id, hold.organization_id))

    assert acme.available == 1_000
    assert not CostLine.objects.exists()


def test_an_unknown_outcome_keeps_its_hold_and_has_no_line(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    outcome = ledger.call(MarkUnknown(hold.id, hold.organization_id))

    assert outcome == ReservationOutcome(ReservationState.UNKNOWN, None, 0, won=True)
    assert acme.available == 900
    assert not CostLine.objects.exists()


def test_usage_that_comes_late_reconciles_an_unknown_outcome(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)
    ledger.call(MarkUnknown(hold.id, hold.organization_id))

    outcome = settle(ledger, hold, 40)

    assert outcome.won
    assert reservation(hold).basis == "reconciled"
    assert acme.available == 960


def test_unknown_and_settled_in_one_batch_is_settled(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    ledger.call_all(
        [MarkUnknown(hold.id, hold.organization_id), Settle(hold.id, hold.organization_id, used(40))]
    )

    assert reservation(hold).state == "settled"


def test_what_was_never_dispatched_cannot_be_unknown(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100, is_dispatched=False)

    ledger.call(MarkUnknown(hold.id, hold.organization_id))

    assert reservation(hold).state == "released"


def test_the_dispatch_mark_is_made_once_and_only_on_a_live_hold(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100, is_dispatched=False)
    assert reservation(hold).dispatched_at is None

    assert ledger.call(MarkDispatched(hold.id, hold.organization_id)) is True
    first = reservation(hold).dispatched_at
    assert ledger.call(MarkDispatched(hold.id, hold.organization_id)) is True
    assert reservation(hold).dispatched_at == first
    ledger.call(Release(hold.id, hold.organization_id))
    with pytest.raises(Unavailable):
        ledger.call(MarkDispatched(hold.id, hold.organization_id))


def test_a_heartbeat_extends_the_lease_and_keeps_what_was_seen(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)
    before = reservation(hold).lease_expires_at
    seen = Quantities(prompt=9, cached=1, completion=2, images=0)

    assert ledger.call(Heartbeat(hold.id, hold.organization_id, seen)) is True
    assert ledger.call(Heartbeat(hold.id, hold.organization_id, None)) is True

    row = reservation(hold)
    assert row.lease_expires_at > before
    assert row.used_quantities == seen


def test_a_heartbeat_learns_that_the_hold_is_gone(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)
    settle(ledger, hold, 1)

    assert ledger.call(Heartbeat(hold.id, hold.organization_id, used(5))) is False


def test_a_heartbeat_renews_the_lease_wherever_the_clock_has_put_the_deadline(
    ledger: Ledger, acme: Customer
) -> None:
    hold = take(ledger, acme, 100)
    Reservation.objects.update(deadline_at=timezone.now() - timedelta(hours=1))

    ledger.call(Heartbeat(hold.id, hold.organization_id))

    assert reservation(hold).lease_expires_at > timezone.now() + timedelta(seconds=10)


def test_a_reservation_of_another_organization_is_not_found(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)

    with pytest.raises(NotFound):
        ledger.call(Release(hold.id, uuid.uuid4()))
    with pytest.raises(NotFound):
        ledger.call(Release(uuid.uuid4(), hold.organization_id))


def test_a_request_that_settles_after_midnight_counts_for_the_day_it_was_admitted(
    ledger: Ledger, acme: Customer
) -> None:
    acme.limit("key", "day", 500)
    hold = take(ledger, acme, 100)
    yesterday(hold)

    today = take(ledger, acme, 450)
    settle(ledger, hold, 80)
    settle(ledger, today, 450)

    assert list(CapPeriod.objects.order_by("starts_at").values_list("held_nanousd", "settled_nanousd")) == [
        (0, 80),
        (0, 450),
    ]
    line = CostLine.objects.get(reservation_id=hold.id)
    assert line.day == CapPeriod.objects.earliest("starts_at").starts_at.date()


# --- what the database itself refuses ----------------------------------------------------------------


def test_the_database_refuses_to_change_what_has_ended(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    settle(ledger, hold, 10)

    for statement in (
        "UPDATE billing_reservation SET charged_nanousd = 0",
        "UPDATE billing_reservation SET state = 'held'",
        "DELETE FROM billing_reservation",
        "UPDATE billing_costline SET amount_nanousd = 0",
        "DELETE FROM billing_costline",
        "UPDATE billing_creditgrant SET amount_nanousd = 1",
        "DELETE FROM billing_creditgrant",
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            execute(statement)


def test_the_database_refuses_to_change_what_was_promised(ledger: Ledger, acme: Customer) -> None:
    take(ledger, acme)

    for change in ("reserved_nanousd = 1", "admitted_at = '2020-01-01 00:00:00'"):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            execute(f"UPDATE billing_reservation SET {change}")


def test_the_database_refuses_a_balance_that_cannot_be(acme: Customer, ledger: Ledger) -> None:
    acme.limit("key", "total", 500)
    take(ledger, acme)

    for statement in (
        "UPDATE billing_account SET held_nanousd = 1001",
        "UPDATE billing_account SET settled_nanousd = 901",
        "UPDATE billing_account SET granted_nanousd = 99",
        "UPDATE billing_account SET held_nanousd = -1",
        "UPDATE billing_capperiod SET held_nanousd = 501",
        "UPDATE billing_keymeter SET live_holds = -1",
        "UPDATE billing_reservation SET charged_nanousd = 101",
        "UPDATE billing_reservation SET state = 'settled'",
        "UPDATE billing_reservation SET state = 'lost'",
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            execute(statement)


def test_the_account_is_what_was_granted(acme: Customer) -> None:
    assert Account.objects.get().granted_nanousd == CreditGrant.objects.get().amount_nanousd == 1_000


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def yesterday(hold: Hold) -> None:
    """Move a hold and its cap's period a day back, past the trigger that forbids it."""
    on = " ON billing_reservation" if connection.vendor == "postgresql" else ""
    trigger = trigger_text()
    execute(f"DROP TRIGGER reservation_ends_once{on}")
    row = reservation(hold)
    Reservation.objects.filter(pk=hold.id).update(admitted_at=row.admitted_at - timedelta(days=1))
    for period in CapPeriod.objects.all():
        assert isinstance(period.ends_at, datetime)
        period.starts_at -= timedelta(days=1)
        period.ends_at -= timedelta(days=1)
        period.save(update_fields=["starts_at", "ends_at"])
    execute(trigger)


def trigger_text() -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'reservation_ends_once'"
            )
        else:
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'reservation_ends_once'")
        return str(cursor.fetchone()[0])
