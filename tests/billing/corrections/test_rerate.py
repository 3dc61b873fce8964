"""An operator charges a period again under another card."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from billing.corrections import history_of
from billing.corrections.rerate import rerate
from billing.ledger.operations import (
    Heartbeat,
    MarkDispatched,
    MarkUnknown,
    Reconcile,
    ReservationOutcome,
    Settle,
)
from billing.models import CapPeriod, Correction, CostAdjustment, CostLine, PriceVersion, Reservation
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from billing.reports.rollup import roll_up
from gateway_site.api.errors import ApiError
from organization.models import AuditEvent
from tests.billing.corrections.priced_requests import (
    A_DAY,
    ONCE,
    RIGHT,
    TEN_TIMES,
    WRONG,
    add_card,
    apply_at,
    books_of,
    charged,
    first_day,
    hold_at,
    many_requests,
    noon,
    scope_of,
    settle_at,
    with_two_keys,
)
from tests.billing.factories import SOMEONE, Customer, make_customer


def test_a_period_is_charged_by_the_corrected_card(rich: Customer, wrong: PriceVersion) -> None:
    stranger = make_customer(credit=10**9)
    (theirs,) = settle_at([stranger], add_card(ONCE, model="another"), noon())
    (identifier,) = settle_at([rich], wrong, noon())
    right = add_card(ONCE)

    result = rerate(scope_of(), actor=SOMEONE, reason="a digit too many")

    settled, corrected = history_of(Reservation.objects.get(pk=identifier))
    assert (settled.charged_nanousd, settled.version_id, settled.reason) == (2_000, wrong.pk, "")
    assert (corrected.charged_nanousd, corrected.version_id) == (200, right.pk)
    assert (corrected.difference_nanousd, corrected.reason) == (-1_800, "a digit too many")
    assert [(line.item, line.quantity, line.amount_nanousd) for line in corrected.lines] == [
        ("prompt", 100, 100),
        ("completion", 50, 100),
    ]
    assert [(line.item, line.quantity, line.amount_nanousd) for line in corrected.changes] == [
        ("prompt", 0, -900),
        ("completion", 0, -900),
    ]
    assert rich.account.settled_nanousd == 200
    assert (result.requests, result.changed, result.before_nanousd, result.after_nanousd) == (
        1,
        1,
        2_000,
        200,
    )
    # The settlement stays as it was, and so does the stranger.
    assert Reservation.objects.get(pk=identifier).charged_nanousd == 2_000
    assert stranger.account.settled_nanousd == charged(theirs) == 200
    assert not CostAdjustment.objects.exclude(organization=rich.organization).exists()


@pytest.mark.slow
def test_a_correction_run_twice_is_once_is_a_fresh_run_at_the_right_price(transactional_db: None) -> None:
    wronged, fresh = (with_two_keys(make_customer(credit=10**15)) for _ in range(2))
    made = many_requests(400, at_once=40)
    ids = settle_at(wronged, add_card(WRONG), *made)
    roll_up()
    theirs = settle_at(fresh, add_card(RIGHT), *made)
    assert books_of(wronged, ids) != books_of(fresh, theirs)

    first = rerate(scope_of(), actor=SOMEONE)

    assert (first.requests, first.changed, first.skipped) == (800, 400, 0)
    assert books_of(wronged, ids) == books_of(fresh, theirs)
    rows = (CostLine.objects.count(), CostAdjustment.objects.count(), Correction.objects.count())

    second = rerate(scope_of(), actor=SOMEONE)

    assert (second.requests, second.changed, second.correction) == (800, 0, None)
    assert rows == (CostLine.objects.count(), CostAdjustment.objects.count(), Correction.objects.count())
    assert books_of(wronged, ids) == books_of(fresh, theirs)
    roll_up()
    assert books_of(wronged, ids) == books_of(fresh, theirs)


def test_a_dry_run_has_the_same_figures_and_changes_nothing(rich: Customer, wrong: PriceVersion) -> None:
    settle_at([rich], wrong, noon(), noon(1), noon(2))
    add_card(ONCE)

    tried = rerate(scope_of(), actor=SOMEONE, is_dry_run=True)

    assert rich.account.settled_nanousd == 6_000
    assert not Correction.objects.exists()
    assert not AuditEvent.objects.filter(action__startswith="correction").exists()
    done = rerate(scope_of(), actor=SOMEONE)
    assert tried.organizations == done.organizations
    assert (tried.correction, tried.changed) == (None, 3)


def test_only_requests_admitted_in_the_period_are_corrected(rich: Customer, wrong: PriceVersion) -> None:
    ids = settle_at([rich], wrong, noon(), noon(1), noon(2), noon(3))
    add_card(ONCE)
    times = [noon(day).moment for day in range(4)]

    rerate(scope_of(starts_at=times[1], ends_at=times[3]), actor=SOMEONE)

    assert [charged(each) for each in ids] == [2_000, 200, 200, 2_000]


def test_one_organization_can_be_corrected_alone(rich: Customer, wrong: PriceVersion) -> None:
    stranger = make_customer(credit=10**9)
    settle_at([rich], wrong, noon())
    settle_at([stranger], wrong, noon())
    add_card(ONCE)

    rerate(scope_of(organization=rich.organization), actor=SOMEONE)

    assert (rich.account.settled_nanousd, stranger.account.settled_nanousd) == (200, 2_000)


def test_each_request_is_charged_by_the_version_in_force_at_its_admission(
    rich: Customer, wrong: PriceVersion
) -> None:
    ids = settle_at([rich], wrong, noon(), noon(1), noon(2))
    add_card(ONCE, valid_from=noon(1).moment)
    add_card(PriceCard.flat(prompt=0, completion=0), valid_from=noon(2).moment)

    rerate(scope_of(), actor=SOMEONE)

    assert [charged(each) for each in ids] == [2_000, 200, 0]


def test_a_version_can_be_named_and_taken_back(rich: Customer, wrong: PriceVersion) -> None:
    (identifier,) = settle_at([rich], wrong, noon())
    later = add_card(ONCE, valid_from=timezone.now())

    rerate(scope_of(), actor=SOMEONE)
    assert charged(identifier) == 2_000
    rerate(scope_of(version=later), actor=SOMEONE)
    assert charged(identifier) == 200
    rerate(scope_of(), actor=SOMEONE)

    revisions = history_of(Reservation.objects.get(pk=identifier))
    assert [each.charged_nanousd for each in revisions] == [2_000, 200, 2_000]
    assert [each.version_id for each in revisions] == [wrong.pk, later.pk, wrong.pk]
    assert revisions[2].lines == revisions[0].lines


def test_another_version_with_the_same_card_changes_nothing(rich: Customer, wrong: PriceVersion) -> None:
    settle_at([rich], wrong, noon())
    add_card(ONCE, valid_from=first_day())
    again = add_card(TEN_TIMES, valid_from=first_day())
    assert again != wrong

    result = rerate(scope_of(), actor=SOMEONE)

    assert (result.requests, result.changed) == (1, 0)


def test_a_correction_charges_what_there_is_and_the_operator_bears_the_loss(transactional_db: None) -> None:
    poor = make_customer(credit=1_000)
    ids = settle_at([poor], add_card(ONCE), *(noon(day) for day in range(3)))
    add_card(TEN_TIMES)

    result = rerate(scope_of(), actor=SOMEONE)

    # Each costs 2,000 now. The first in time gets what is left, the others nothing more.
    assert [charged(each) for each in ids] == [600, 200, 200]
    assert poor.available == 0
    assert result.uncollected_nanousd == 5_000
    revisions = [history_of(Reservation.objects.get(pk=each))[-1] for each in ids]
    assert [each.uncollected_nanousd for each in revisions] == [1_400, 1_800, 1_800]
    poor.grant(10_000)
    assert rerate(scope_of(), actor=SOMEONE).changed == 0
    assert poor.available == 10_000


def test_a_request_that_was_charged_less_than_its_cost_is_charged_in_full(transactional_db: None) -> None:
    poor = make_customer(credit=250)
    version = add_card(ONCE)
    (hold,) = hold_at([poor], version, noon())
    used = Quantities(prompt=100, completion=100)
    (outcome,) = apply_at(noon().moment, [Settle(hold.id, hold.organization_id, used)])
    assert isinstance(outcome, ReservationOutcome)
    assert outcome.charged_nanousd == 250
    poor.grant(1_000)
    add_card(PriceCard.flat(prompt=2_000, completion=2_000))

    rerate(scope_of(), actor=SOMEONE)

    assert charged(hold.id) == 400


def test_what_has_no_quantities_or_has_not_ended_is_left_and_named(
    rich: Customer, wrong: PriceVersion
) -> None:
    lost, running = hold_at([rich], wrong, noon(), noon())
    ids = (lost.id, lost.organization_id)
    apply_at(noon().moment, [MarkDispatched(*ids)])
    # Tokens were counted, and then somebody found out what they cost.
    apply_at(noon().moment, [Heartbeat(*ids, Quantities(prompt=1))])
    apply_at(noon().moment, [MarkUnknown(*ids)])
    apply_at(noon().moment, [Reconcile(*ids, 1_234)])
    add_card(ONCE)

    result = rerate(scope_of(), actor=SOMEONE)

    assert (result.requests, result.changed, result.skipped, result.still_open) == (1, 0, 1, 1)
    assert [identifier for identifier, _ in result.skipped_requests] == [lost.id]
    assert Reservation.objects.get(pk=lost.id).used == {"prompt": 1}
    assert charged(lost.id) == 1_234
    apply_at(noon().moment, [Settle(running.id, running.organization_id, Quantities(prompt=100))])
    assert rerate(scope_of(), actor=SOMEONE).changed == 1


def test_limits_count_the_corrected_charge_even_above_them(transactional_db: None) -> None:
    customer = make_customer(credit=10**9)
    customer.limit("key", "day", 500)
    customer.limit("organization", "total", 500)
    settle_at([customer], add_card(ONCE), noon(), noon(1))
    add_card(TEN_TIMES)

    rerate(scope_of(), actor=SOMEONE)

    assert customer.account.settled_nanousd == 4_000
    assert counted(customer, "total") == [4_000]
    assert counted(customer, "day")[:2] == [2_000, 2_000]
    add_card(ONCE)
    rerate(scope_of(), actor=SOMEONE)
    assert counted(customer, "total") == [400]


def counted(customer: Customer, period: str) -> list[int]:
    periods = CapPeriod.objects.filter(cap__organization=customer.organization, cap__period=period)
    return [each.settled_nanousd for each in periods.order_by("starts_at")]


def test_the_audit_trail_says_who_corrected_what(rich: Customer, wrong: PriceVersion) -> None:
    settle_at([rich], wrong, noon())
    add_card(ONCE)

    result = rerate(scope_of(), actor=SOMEONE, reason="a digit too many")

    start, finish = AuditEvent.objects.filter(action__startswith="correction").order_by("pk")
    assert (start.action, finish.action) == ("correction.start", "correction.finish")
    assert result.correction is not None
    assert start.target_id == finish.target_id == str(result.correction.pk)
    assert (start.details["model"], start.details["reason"]) == ("gpt", "a digit too many")
    assert finish.details["organizations"] == {
        str(rich.organization.pk): {
            "requests": 1,
            "difference_usd": "-0.0000018",
            "uncollected_usd": "0",
        }
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "nothing"}, "no price version of a model 'nothing'"),
        ({"ends_at": first_day()}, "begin before it ends"),
        ({"ends_at": timezone.now() + A_DAY}, "not end in the future"),
    ],
)
def test_a_period_that_cannot_be_meant_is_refused(
    rich: Customer, wrong: PriceVersion, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        rerate(scope_of(**options), actor=SOMEONE)


def test_a_version_of_another_model_is_refused(rich: Customer, wrong: PriceVersion) -> None:
    other = add_card(ONCE, model="another")

    with pytest.raises(ApiError, match="is of another, not gpt"):
        rerate(scope_of(version=other), actor=SOMEONE)


def test_corrections_can_only_be_added(rich: Customer, wrong: PriceVersion) -> None:
    settle_at([rich], wrong, noon())
    add_card(ONCE)
    rerate(scope_of(), actor=SOMEONE)

    for statement in (
        "UPDATE billing_correction SET reason = ''",
        "DELETE FROM billing_correction",
        "UPDATE billing_costadjustment SET uncollected_nanousd = 1",
        "DELETE FROM billing_costadjustment",
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            connection.cursor().execute(statement)
