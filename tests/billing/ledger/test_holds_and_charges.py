"""How far a charge and an unknown outcome are from the hold, and which card a request is charged by."""

from __future__ import annotations

import pytest

from billing.ledger import batch
from billing.ledger.decisions import FASTEST_TOKENS_A_SECOND
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, Release, ReservationOutcome, Settle
from billing.models import ChargeBasis, EndedBy
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.price import Quantities
from tests.billing.factories import Customer, reservation, used, version_of


def take(ledger: Ledger, customer: Customer, amount: int = 100, **options: object) -> Hold:
    hold = ledger.call(customer.request(amount, **options))
    assert isinstance(hold, Hold)
    return hold


def settle(ledger: Ledger, hold: Hold, tokens: int) -> ReservationOutcome:
    outcome = ledger.call(Settle(hold.id, hold.organization_id, used(tokens)))
    assert isinstance(outcome, ReservationOutcome)
    return outcome


def test_what_is_used_beyond_the_hold_is_charged_while_there_is_credit(
    ledger: Ledger, acme: Customer
) -> None:
    hold = take(ledger, acme, 100)

    outcome = settle(ledger, hold, 130)

    assert (outcome.charged_nanousd, outcome.operator_loss_nanousd) == (130, 0)
    assert outcome.extended_nanousd == 30
    row = reservation(hold)
    assert (row.reserved_nanousd, row.charged_nanousd, row.operator_loss_nanousd) == (130, 130, 0)
    assert sum(line.amount_nanousd for line in row.lines.all()) == 130
    assert acme.available == 870


def test_credit_that_others_hold_is_not_charged(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 100)
    take(ledger, acme, 890)

    outcome = settle(ledger, hold, 130)

    assert (outcome.charged_nanousd, outcome.operator_loss_nanousd) == (110, 20)
    assert reservation(hold).operator_loss_nanousd == 20
    assert acme.available == 0


@pytest.mark.parametrize("scope", ["organization", "project", "key"])
def test_a_cap_bounds_what_is_charged_beyond_the_hold(ledger: Ledger, acme: Customer, scope: str) -> None:
    acme.limit(scope, "day", 115)
    hold = take(ledger, acme, 100)

    outcome = settle(ledger, hold, 130)

    assert (outcome.charged_nanousd, outcome.operator_loss_nanousd) == (115, 15)


def test_an_unknown_outcome_keeps_only_what_can_have_been_generated(ledger: Ledger, acme: Customer) -> None:
    bounds = Quantities(prompt=100, completion=100_000)
    acme.grant(100_000)
    hold = take(ledger, acme, 100_100, bounds=bounds)

    outcome = ledger.call(MarkUnknown(hold.id, hold.organization_id, EndedBy.BACKEND))

    assert isinstance(outcome, ReservationOutcome)
    row = reservation(hold)
    assert (row.state, row.ended_by) == ("unknown", "backend")
    # A second's worth: it was dispatched just now.
    assert row.reserved_nanousd == 100 + FASTEST_TOKENS_A_SECOND
    assert acme.available == 101_000 - row.reserved_nanousd


def test_the_row_tells_who_ended_the_request(ledger: Ledger, acme: Customer) -> None:
    left, released = take(ledger, acme), take(ledger, acme)

    ledger.call(Settle(left.id, left.organization_id, used(7), ChargeBasis.ESTIMATED, EndedBy.CLIENT))
    ledger.call(Release(released.id, released.organization_id, EndedBy.POLICY))

    assert (reservation(left).basis, reservation(left).ended_by) == ("estimated", "client")
    assert reservation(left).used_quantities == used(7)
    assert reservation(released).ended_by == "policy"


def test_a_request_is_charged_by_the_version_that_it_was_admitted_under(
    ledger: Ledger, acme: Customer
) -> None:
    """Tiers by the prompt's length, and cache writes, as a provider bills them."""
    tiers = (Tier(200_000, 6_000),)
    card = PriceCard({"prompt": Rate(3_000, tiers), "completion": Rate(15_000), "cache_write": Rate(3_750)})
    acme.grant(10**10)
    hold = take(ledger, acme, 10**9, version=version_of(card))
    version_of(PriceCard.flat(prompt=9, completion=9))

    ledger.call(
        Settle(hold.id, hold.organization_id, Quantities(prompt=300_000, cache_write=9_000, completion=100))
    )

    lines = reservation(hold).lines.order_by("id").values_list("line_item", "quantity", "amount_nanousd")
    assert list(lines) == [
        ("gpt, prompt", 291_000, 291_000 * 6),
        ("gpt, cache write", 9_000, 33_750),
        ("gpt, completion", 100, 1_500),
    ]


def test_a_settlement_by_another_process_reads_the_card(ledger: Ledger, acme: Customer) -> None:
    hold = take(ledger, acme, 900, version=version_of(PriceCard.flat(prompt=2_000, completion=3_000)))
    batch._cards.clear()

    settle(ledger, hold, 10)

    assert reservation(hold).charged_nanousd == 20
