"""How an operator ends requests whose outcome nobody knows: one by one, and many by a rule."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier

import pytest
from django.core.management import CommandError
from django.db import connection
from django.utils import timezone

from billing import reservation_services
from billing.ledger import sweeper
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, ReservationOutcome, Settle
from billing.models import CostLine, Reservation
from billing.prices.price import Quantities
from billing.reservation_services import UnknownResolution
from gateway_site.api.errors import Conflict, InvalidRequest, NotFound
from organization.models import AuditEvent
from tests.billing.factories import SOMEONE, Customer, make_customer, reservation, used
from tests.billing.reservation_services.factories import make_unknown
from tests.harness.commands import run, say

NOW = timedelta()


def states() -> list[str]:
    return sorted(Reservation.objects.values_list("state", flat=True))


# --- one -----------------------------------------------------------------------------------------------


def test_an_operator_settles_an_unknown_reservation(ledger: Ledger, acme: Customer) -> None:
    (hold,) = make_unknown(ledger, acme)

    row, _ = reservation_services.settle_reservation(reservation_id=hold.id, amount_nanousd=70, actor=SOMEONE)

    assert (row.state, row.basis, row.charged_nanousd) == ("settled", "reconciled", 70)
    assert acme.available == 930
    assert AuditEvent.objects.get(target_id=str(hold.id)).action == "reservation.settle"


@pytest.mark.parametrize(
    ("resolution", "state", "charged", "loss"),
    [
        ("release", "released", 0, 0),
        ("charge_observed", "settled", 30, 0),
        ("write_off", "written_off", 0, 100),
    ],
)
def test_an_operator_ends_an_unknown_reservation_by_a_rule(
    ledger: Ledger, acme: Customer, resolution: str, state: str, charged: int, loss: int
) -> None:
    (hold,) = make_unknown(ledger, acme, seen=30)

    row, _ = reservation_services.resolve_reservation(
        reservation_id=hold.id, resolution=UnknownResolution(resolution), actor=SOMEONE
    )

    assert (row.state, row.charged_nanousd, row.operator_loss_nanousd) == (state, charged, loss)
    assert acme.available == 1_000 - charged
    assert CostLine.objects.exists() == bool(charged)
    assert AuditEvent.objects.get(target_id=str(hold.id)).action == f"reservation.{resolution}"


def test_only_an_unknown_reservation_can_be_resolved_by_hand(ledger: Ledger, acme: Customer) -> None:
    hold = ledger.call(acme.request(100))
    assert isinstance(hold, Hold)

    with pytest.raises(Conflict, match="is held"):
        reservation_services.settle_reservation(reservation_id=hold.id, amount_nanousd=1, actor=SOMEONE)
    with pytest.raises(NotFound):
        reservation_services.settle_reservation(reservation_id=uuid.uuid4(), amount_nanousd=1, actor=SOMEONE)
    with pytest.raises(InvalidRequest):
        reservation_services.settle_reservation(reservation_id=hold.id, amount_nanousd=-1, actor=SOMEONE)
    assert not AuditEvent.objects.filter(action__startswith="reservation").exists()


def test_a_failed_request_gives_back_at_once_what_it_cannot_have_used(ledger: Ledger, acme: Customer) -> None:
    acme.grant(99_000)
    hold = ledger.call(acme.request(90_100, bounds=Quantities(prompt=100, completion=90_000)))
    assert isinstance(hold, Hold)
    assert acme.available == 9_900

    ledger.call(MarkUnknown(hold.id, hold.organization_id))

    # The prompt, and what a backend generates in the first second at the very most.
    assert reservation(hold).reserved_nanousd < 90_100 / 5
    assert acme.available == 100_000 - reservation(hold).reserved_nanousd


# --- many ----------------------------------------------------------------------------------------------


def test_everything_that_is_unknown_is_charged_as_seen_with_one_command(
    ledger: Ledger, acme: Customer
) -> None:
    make_unknown(ledger, acme, 2, seen=30)
    make_unknown(ledger, acme, 3)
    running = ledger.call(acme.request(100))
    assert isinstance(running, Hold)

    answer = run("resolve_reservations", "--older-than=0s", "--charge-observed")

    assert answer == {
        "dry_run": False,
        "resolution": "charge_observed",
        "resolved": 5,
        "charged": 2,
        "released": 3,
        "written_off": 0,
        "already_resolved": 0,
        "left_over": 0,
        "charged_usd": "0.00000006",
        "operator_loss_usd": "0.0000003",
    }
    assert reservation(running).state == "held"
    assert acme.available == 1_000 - 60 - 100


@pytest.mark.parametrize(
    ("option", "state", "loss"), [("release", "released", 0), ("write-off", "written_off", 300)]
)
def test_everything_that_is_unknown_is_given_back_with_one_command(
    ledger: Ledger, acme: Customer, option: str, state: str, loss: int
) -> None:
    make_unknown(ledger, acme, 3, seen=30)

    answer = run("resolve_reservations", "--older-than=0s", f"--{option}")

    assert (answer["resolved"], answer[state]) == (3, 3)
    assert states() == [state] * 3
    assert sum(row.operator_loss_nanousd for row in Reservation.objects.all()) == loss
    assert acme.available == 1_000


def test_only_one_organization_and_one_model_are_resolved_where_they_are_named(
    ledger: Ledger, acme: Customer
) -> None:
    stranger = make_customer(credit=1_000)
    (mine,) = make_unknown(ledger, acme)
    (other_model,) = make_unknown(ledger, acme, model="claude")
    (theirs,) = make_unknown(ledger, stranger)

    only = ("--older-than=0s", "--release", "--organization", acme.organization.pk, "--model=gpt")
    assert run("resolve_reservations", *only)["resolved"] == 1

    assert reservation(mine).state == "released"
    assert reservation(other_model).state == reservation(theirs).state == "unknown"
    assert stranger.available == 900
    event = AuditEvent.objects.get(action__startswith="reservation")
    assert event.organization == acme.organization


def test_what_is_not_old_enough_is_left_alone(ledger: Ledger, acme: Customer) -> None:
    (old,) = make_unknown(ledger, acme)
    Reservation.objects.update(unknown_at=timezone.now() - timedelta(minutes=31))
    (young,) = make_unknown(ledger, acme)

    assert run("resolve_reservations", "--older-than=30m", "--release")["resolved"] == 1

    assert (reservation(old).state, reservation(young).state) == ("released", "unknown")


def test_a_dry_run_counts_and_changes_nothing(ledger: Ledger, acme: Customer) -> None:
    make_unknown(ledger, acme, 2, seen=30)
    make_unknown(ledger, acme)

    answer = run("resolve_reservations", "--older-than=0s", "--charge-observed", "--dry-run")

    assert answer == {
        "dry_run": True,
        "resolution": "charge_observed",
        "matching": 3,
        "observed": 2,
        "held_usd": "0.0000003",
    }
    assert states() == ["unknown"] * 3
    assert "Nothing was changed" in say("resolve_reservations", "--older-than=0s", "--release", "--dry-run")


def test_run_twice_it_resolves_once(ledger: Ledger, acme: Customer) -> None:
    make_unknown(ledger, acme, 3, seen=30)

    first = run("resolve_reservations", "--older-than=0s", "--charge-observed")
    again = run("resolve_reservations", "--older-than=0s", "--charge-observed")

    assert (first["charged"], again["resolved"], again["already_resolved"]) == (3, 0, 0)
    assert acme.available == 910
    assert AuditEvent.objects.filter(action="reservations.charge_observed").count() == 1


def test_the_command_says_what_it_did(ledger: Ledger, acme: Customer) -> None:
    make_unknown(ledger, acme, 2, seen=30)
    make_unknown(ledger, acme)

    answer = say("resolve_reservations", "--older-than=0s", "--charge-observed")

    assert "3 reservations are resolved. 2 were charged $0.00000006 in all; 1 had nothing" in answer
    assert "loss is $0.0000001" in answer


@pytest.mark.parametrize(
    "arguments",
    [
        ("--older-than=soon", "--release"),
        ("--older-than=-5m", "--release"),
        ("--older-than=99999999d", "--release"),
        ("--release",),
        ("--older-than=5m",),
        ("--older-than=5m", "--release", "--write-off"),
        ("--older-than=0s", "--release", "--organization=nobody"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    ledger: Ledger, acme: Customer, arguments: tuple[str, ...]
) -> None:
    make_unknown(ledger, acme)

    with pytest.raises(CommandError):
        run("resolve_reservations", *arguments)

    assert states() == ["unknown"]


def test_an_event_of_bounded_size_names_every_reservation(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation_services, "BATCH", 2)
    holds = make_unknown(ledger, acme, 5)

    reservation_services.resolve_reservations(
        older_than=NOW, resolution=UnknownResolution.WRITE_OFF, actor=SOMEONE
    )

    events = AuditEvent.objects.filter(action="reservations.write_off", target_id=str(acme.organization.pk))
    assert [event.details["count"] for event in events] == [2, 2]
    alone = AuditEvent.objects.get(action="reservation.write_off").target_id
    named = {each for event in events for each in event.details["ids"]} | {alone}
    assert named == {str(hold.id) for hold in holds}


def test_what_is_too_much_for_one_call_is_said_to_be_left(ledger: Ledger, acme: Customer) -> None:
    make_unknown(ledger, acme, 5)

    totals = reservation_services.resolve_reservations(
        older_than=NOW, resolution=UnknownResolution.RELEASE, actor=SOMEONE, limit=3
    )

    assert (totals.resolved, totals.left_over) == (3, 2)


COUNT = 400


@pytest.mark.slow
def test_each_ends_once_beside_late_settlements_and_the_sweeper(
    make_ledger: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation_services, "BATCH", 20)
    monkeypatch.setattr(sweeper, "MOST", 20)
    customer, ledger = make_customer(credit=COUNT * 100), make_ledger()
    holds = make_unknown(ledger, customer, COUNT, seen=30)
    lanes: list[Callable[[], int]] = [
        partial(resolve_all, UnknownResolution.CHARGE_OBSERVED),
        partial(resolve_all, UnknownResolution.RELEASE),
        partial(settle_late, ledger, holds),
        sweep_later,
    ]
    start = Barrier(len(lanes))

    def race(lane: Callable[[], int]) -> int:
        start.wait(30)
        try:
            return lane()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(lanes)) as pool:
        won = list(pool.map(race, lanes))

    assert sum(won) == COUNT, won
    assert sum(map(bool, won)) > 1, "one of them won every race, so there was none"
    charged = Counter(Reservation.objects.exclude(state="unknown").values_list("charged_nanousd", flat=True))
    assert charged.total() == COUNT
    assert charged[70] == won[2]
    assert customer.available == COUNT * 100 - charged[30] * 30 - charged[70] * 70


def resolve_all(resolution: UnknownResolution) -> int:
    return reservation_services.resolve_reservations(
        older_than=NOW, resolution=resolution, actor=SOMEONE
    ).resolved


def settle_late(ledger: Ledger, holds: list[Hold]) -> int:
    won = 0
    for i in range(COUNT, 0, -20):  # from the end: the others begin with the oldest
        answers = ledger.call_all(
            [Settle(hold.id, hold.organization_id, used(70)) for hold in holds[i - 20 : i]]
        )
        won += sum(isinstance(answer, ReservationOutcome) and answer.won for answer in answers)
    return won


def sweep_later() -> int:
    later = timezone.now() + timedelta(minutes=11)
    return sum(sweeper.sweep(later).unknown_released for _ in range(5))
