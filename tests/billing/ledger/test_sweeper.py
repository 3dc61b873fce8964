from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from billing.ledger.ledger import Ledger, get_ledger
from billing.ledger.operations import Expire, Heartbeat, Hold, MarkUnknown, Settle
from billing.ledger.sweeper import LeaseWatch, SweepCounts, Sweeper, sweep, sweep_after_watching
from billing.models import Reservation
from tests.billing.factories import Customer, reservation, used


def take(ledger: Ledger, customer: Customer, **options: object) -> Hold:
    hold = ledger.call(customer.request(100, **options))
    assert isinstance(hold, Hold)
    return hold


def later(seconds: float = 16, minutes: float = 0):  # type: ignore[no-untyped-def]
    return timezone.now() + timedelta(seconds=seconds, minutes=minutes)


# Believes what it sees at first sight.
AT_ONCE = LeaseWatch(seconds=0)


def test_it_works(ledger: Ledger, acme: Customer) -> None:
    take(ledger, acme)
    take(ledger, acme, is_dispatched=False)

    assert sweep(later()) == SweepCounts(released=1, unknown=1)


def test_what_was_never_dispatched_is_released(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, is_dispatched=False)

    sweep(later())

    assert reservation(hold).state == "released"
    assert acme.available == 1_000


def test_what_was_seen_so_far_is_settled(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    ledger.call(Heartbeat(hold.id, hold.organization_id, used(30)))

    assert sweep(later()) == SweepCounts(settled=1)

    row = reservation(hold)
    assert (row.state, row.basis, row.charged_nanousd) == ("settled", "checkpoint", 30)


def test_what_cannot_be_known_is_unknown_and_stays_so_until_it_is_too_old(
    ledger: Ledger, acme: Customer
) -> None:
    hold = take(ledger, acme)
    sweep(later())
    assert reservation(hold).state == "unknown"
    assert acme.available == 900

    assert sweep(later(minutes=9)) == SweepCounts()
    assert sweep(later(minutes=11)) == SweepCounts(unknown_released=1, operator_loss_nanousd=100)

    row = reservation(hold)
    assert (row.state, row.ended_by, row.operator_loss_nanousd) == ("released", "crash", 100)
    assert acme.available == 1_000


def test_a_live_lease_is_left_alone(ledger: Ledger, acme: Customer) -> None:
    take(ledger, acme)

    assert sweep(AT_ONCE) == SweepCounts()
    assert sweep(later(seconds=10)) == SweepCounts()


def test_a_heartbeat_that_came_in_time_saves_the_hold(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    expired_as_read = later()
    Reservation.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    ledger.call(Heartbeat(hold.id, hold.organization_id))

    assert sweep(expired_as_read - timedelta(seconds=10)) == SweepCounts()


def test_by_the_database_clock_an_expired_lease_is_swept(ledger: Ledger, acme: Customer) -> None:
    take(ledger, acme)
    Reservation.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))

    assert sweep(AT_ONCE) == SweepCounts(unknown=1)
    assert sweep(AT_ONCE) == SweepCounts()


def test_a_settlement_that_comes_after_the_sweep_reconciles(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    sweep(later())

    ledger.call(Settle(hold.id, hold.organization_id, used(7)))

    assert reservation(hold).charged_nanousd == 7


def test_a_settlement_that_comes_after_the_checkpoint_was_charged_is_too_late(
    ledger: Ledger, acme: Customer
) -> None:
    hold = take(ledger, acme)
    ledger.call(Heartbeat(hold.id, hold.organization_id, used(5)))
    sweep(later())

    outcome = ledger.call(Settle(hold.id, hold.organization_id, used(7)))

    assert reservation(hold).charged_nanousd == 5
    assert not outcome.won  # type: ignore[union-attr]


def test_an_old_unknown_is_found_whoever_marked_it(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    ledger.call(MarkUnknown(hold.id, hold.organization_id))
    Reservation.objects.update(unknown_at=timezone.now() - timedelta(minutes=9))
    assert sweep(LeaseWatch()) == SweepCounts()
    Reservation.objects.update(unknown_at=timezone.now() - timedelta(minutes=11))

    assert sweep(LeaseWatch()) == SweepCounts(unknown_released=1, operator_loss_nanousd=100)
    assert sweep(LeaseWatch()) == SweepCounts()


def test_an_outcome_stays_unknown_for_as_long_as_the_operator_says(
    acme: Customer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.GATEWAY_UNKNOWN_MINUTES = 60
    ledger = get_ledger()
    hold = take(ledger, acme)
    ledger.call(MarkUnknown(hold.id, hold.organization_id))

    assert sweep(later(minutes=59)) == SweepCounts()
    assert sweep(later(minutes=61)) == SweepCounts(unknown_released=1, operator_loss_nanousd=100)

    assert "may cost the operator $0.0000001" in caplog.text


@pytest.mark.parametrize("state", ["settled", "released"])
def test_what_has_ended_is_never_swept(ledger: Ledger, acme: Customer, state: str) -> None:
    from billing.ledger.operations import Release

    hold = take(ledger, acme)
    place = (hold.id, hold.organization_id)
    ledger.call(Settle(*place, used(1)) if state == "settled" else Release(*place))

    assert sweep(later(minutes=60_000)) == SweepCounts()


@pytest.mark.slow
def test_a_serving_process_sweeps_by_itself(ledger: Ledger, acme: Customer, settings: Any) -> None:
    settings.GATEWAY_LEASE_SECONDS = 1
    hold = take(ledger, acme)
    Reservation.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    sweeper = Sweeper(every_seconds=0.02)

    sweeper.start()
    until = time.monotonic() + 5
    while reservation(hold).state == "held" and time.monotonic() < until:
        time.sleep(0.01)
    sweeper.stop()

    assert reservation(hold).state == "unknown"


@pytest.mark.slow
@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_ends_no_live_request(ledger: Ledger, acme: Customer, hours: int) -> None:
    hold = take(ledger, acme)
    watch = LeaseWatch(seconds=0.3)
    set_the_clock(hours)

    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert sweep(watch) == SweepCounts()
        assert ledger.call(Heartbeat(hold.id, hold.organization_id, used(1))) is True
        time.sleep(0.05)

    assert reservation(hold).state == "held"
    assert abs(reservation(hold).lease_expires_at - timezone.now()) < timedelta(seconds=30)
    assert sweep_after_watching() == SweepCounts()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_keeps_no_lost_request(ledger: Ledger, acme: Customer, hours: int) -> None:
    hold = take(ledger, acme)
    watch = LeaseWatch(seconds=0.1)
    set_the_clock(hours)

    assert sweep(watch) == SweepCounts()
    assert watch.is_waiting
    time.sleep(0.2)

    assert sweep(watch) == SweepCounts(unknown=1)
    assert reservation(hold).state == "unknown"


def test_a_heartbeat_between_the_look_and_the_decision_saves_the_hold(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme)
    set_the_clock(1)
    seen = reservation(hold).lease_expires_at
    ledger.call(Heartbeat(hold.id, hold.organization_id))

    outcome = ledger.call(Expire(hold.id, hold.organization_id, unrenewed_lease=seen))

    assert (outcome.state, outcome.won) == ("held", False)  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_command_without_memory_watches_for_a_lease(ledger: Ledger, acme: Customer, settings: Any) -> None:
    settings.GATEWAY_LEASE_SECONDS = 1
    take(ledger, acme)
    set_the_clock(1)

    assert sweep_after_watching() == SweepCounts(unknown=1)


def set_the_clock(hours: int) -> None:
    """What is stored is as far from the time as if the clock had been set by so much."""
    step = timedelta(hours=hours)
    Reservation.objects.update(
        lease_expires_at=F("lease_expires_at") - step, deadline_at=F("deadline_at") - step
    )
