"""Support reads why a request is charged what it is: its prices, its hold, who ended it, who bears a loss."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from billing.corrections.requests import CorrectionScope
from billing.corrections.rerate import rerate
from billing.ledger.operations import Expire, Hold, MarkUnknown, Operation, Reconcile, Release, Settle
from billing.models import ChargeBasis as Basis
from billing.models import EndedBy, PriceVersion, Reservation, ReservationState
from billing.money import usd
from billing.prices.bill import charge
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from billing.prices.versions import add_version
from billing.reports.explained_charge import ExplainedCharge, explain_charge, quantities_text
from billing.reports.outcome_sentences import outcome_sentence
from tests.billing.factories import PRICE, SOMEONE, Customer, make_customer, version_of
from tests.billing.settled_requests import FIRST, apply

TIERED = PriceCard(
    {
        "prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),)),
        "completion": Rate(15_000_000, (Tier(200_000, 22_500_000),)),
        "cached": Rate(300_000, (Tier(200_000, 600_000),)),
        "image": Rate(2_000_000_000),
    }
)
BOUNDS = Quantities(prompt=260_000, completion=4_096, images=1, web_searches=2)
NOON, LATER, MUCH_LATER = time(12), time(12, 0, 2), time(12, 30)


@pytest.fixture
def customer(db: None) -> Customer:
    return make_customer(credit=10**12)


def admit(customer: Customer, card: PriceCard = TIERED, bounds: Quantities = BOUNDS) -> Hold:
    asked = customer.request(hold_amount(card, bounds), version=version_of(card), bounds=bounds)
    (answer,) = apply(FIRST, NOON, [asked])
    assert isinstance(answer, Hold)
    return answer


def end(hold: Hold, operation: Operation, clock: time = LATER) -> ExplainedCharge:
    apply(FIRST, clock, [operation])
    return explain_charge(Reservation.objects.get(pk=hold.id))


def settle(hold: Hold, used: Quantities) -> ExplainedCharge:
    return end(hold, Settle(hold.id, hold.organization_id, used))


def test_it_works(customer: Customer) -> None:
    hold = admit(customer)
    used = Quantities(prompt=200_001, cached=1, completion=1_000, images=1)

    explained = settle(hold, used)

    assert [(line.item, line.quantity, line.price) for line in explained.lines] == [
        ("prompt", "200,000", "$6 per million tokens"),
        ("cached prompt", "1", "$0.6 per million tokens"),
        ("completion", "1,000", "$22.5 per million tokens"),
        ("image", "1", "$0.002 per image"),
    ]
    assert [line.amount for line in explained.lines] == ["1.2", "0.0000006", "0.0225", "0.002"]
    assert explained.charged == usd(charge(TIERED, used)) == "1.2245006"
    assert explained.tier == "prompt over 200,000 tokens"
    assert explained.version == PriceVersion.objects.get(checksum=TIERED.checksum)
    assert explained.hold.at_admission == explained.hold.amount == usd(hold.amount_nanousd)
    assert explained.hold.bounds == (
        "260,000 prompt tokens, 4,096 completion tokens, 1 image, 2 web searches"
    )
    assert explained.hold.change == ""
    assert explained.outcome == "The answer was complete: it was charged as the backend reported."
    assert (explained.full_cost, explained.operator_loss, explained.unknown) == ("", "", None)


def test_a_prompt_at_the_threshold_has_the_lower_price(customer: Customer) -> None:
    explained = settle(admit(customer), Quantities(prompt=200_000))

    assert explained.tier == ""
    assert explained.lines[0].price == "$3 per million tokens"


def test_more_than_the_bounds_extends_the_hold(customer: Customer) -> None:
    hold = admit(customer, PRICE, Quantities(prompt=100))

    explained = settle(hold, Quantities(prompt=130))

    assert (explained.hold.at_admission, explained.hold.amount) == ("0.0000001", "0.00000013")
    assert explained.hold.change == (
        "Extended by $0.00000003: more was used than the bounds that it was held for."
    )
    assert explained.charged == "0.00000013"
    assert (explained.full_cost, explained.operator_loss) == ("", "")


def test_what_no_credit_was_left_for_is_the_operators(db: None) -> None:
    hold = admit(make_customer(credit=110), PRICE, Quantities(prompt=100))

    explained = settle(hold, Quantities(prompt=130))

    assert explained.charged == "0.00000011"
    assert explained.full_cost == "0.00000013"
    assert explained.operator_loss == (
        "The operator bears $0.00000002: it cost more than was held for it, and neither credit nor spending "
        "limits had more left."
    )


def test_an_unknown_outcome_says_what_is_held_and_when_that_ends(customer: Customer) -> None:
    hold = admit(customer, bounds=Quantities(prompt=1_000, completion=100_000))

    explained = end(hold, MarkUnknown(hold.id, hold.organization_id, EndedBy.BACKEND))

    reservation = explained.reservation
    assert reservation.state == ReservationState.UNKNOWN
    assert reservation.reserved_nanousd < hold.amount_nanousd
    assert explained.hold.at_admission == usd(hold.amount_nanousd)
    assert explained.hold.change.startswith("Shrunk by $1.4")
    assert explained.charged is None
    assert explained.unknown is not None
    assert explained.unknown.since == reservation.unknown_at
    assert explained.unknown.resolves_at == explained.unknown.since + timedelta(minutes=10)
    assert explained.unknown.sentence.startswith("10 minutes after the outcome became unknown the hold is")
    assert f"${explained.hold.amount} is recorded" in explained.unknown.sentence


def test_an_unknown_outcome_that_nobody_found_out_is_the_operators(customer: Customer) -> None:
    hold = admit(customer)
    held = end(hold, MarkUnknown(hold.id, hold.organization_id, EndedBy.BACKEND)).hold.amount

    explained = end(hold, Expire(hold.id, hold.organization_id), MUCH_LATER)

    assert explained.unknown is None
    assert explained.charged == "0"
    assert explained.outcome == (
        "The backend refused, failed or was cut off: it was not found out what the backend had done, and "
        "nothing was charged."
    )
    assert explained.operator_loss == (
        f"The operator bears up to ${held}, which the provider may ask for: its outcome stayed unknown."
    )


def test_an_amount_that_was_found_out_later_has_no_price(customer: Customer) -> None:
    hold = admit(customer)
    end(hold, MarkUnknown(hold.id, hold.organization_id, EndedBy.DEADLINE))

    explained = end(hold, Reconcile(hold.id, hold.organization_id, 5_000))

    assert [(line.item, line.price, line.amount) for line in explained.lines] == [
        ("reconciled", "", "0.000005")
    ]
    assert explained.tier == ""
    assert explained.outcome == (
        "The deadline passed before the end: what it cost was found out later, and charged then."
    )


def test_a_correction_shows_old_new_and_difference(customer: Customer) -> None:
    hold = admit(customer)
    settle(hold, Quantities(prompt=200_001, completion=1_000))
    cheaper = PriceCard({**TIERED.rates, "prompt": Rate(3_000_000), "image": Rate(0)})
    starts_at = datetime.combine(FIRST, time(), UTC)
    version, _ = add_version(
        model="gpt", card=cheaper, source="list of March", actor=SOMEONE, valid_from=starts_at
    )
    scope = CorrectionScope("gpt", starts_at, starts_at + timedelta(days=1))
    rerate(scope, actor=SOMEONE, reason="The list was wrong.")

    explained = explain_charge(Reservation.objects.get(pk=hold.id))

    (correction,) = explained.corrections
    assert (correction.before, correction.after) == ("1.222506", "0.622503")
    assert correction.difference == "-$0.600003"
    assert correction.changes == "prompt -$0.600003"
    assert (correction.reason, correction.source) == ("The list was wrong.", "list of March")
    assert correction.version_id == version.pk
    assert correction.uncollected == ""
    # What stands now.
    assert explained.version == version
    assert explained.charged == "0.622503"
    assert [(line.item, line.price, line.amount) for line in explained.lines] == [
        ("prompt", "$3 per million tokens", "0.600003"),
        ("completion", "$22.5 per million tokens", "0.0225"),
    ]
    # As it was admitted.
    assert explained.hold.at_admission == usd(hold.amount_nanousd)
    assert explained.hold.change == ""


def test_a_correction_that_there_is_no_credit_for_says_who_bears_it(db: None) -> None:
    hold = admit(make_customer(credit=110), PRICE, Quantities(prompt=100))
    settle(hold, Quantities(prompt=100))
    dearer = PriceCard.flat(prompt=2_000, completion=1_000)
    starts_at = datetime.combine(FIRST, time(), UTC)
    add_version(model="gpt", card=dearer, source="tests", actor=SOMEONE, valid_from=starts_at)
    rerate(CorrectionScope("gpt", starts_at, starts_at + timedelta(days=1)), actor=SOMEONE)

    explained = explain_charge(Reservation.objects.get(pk=hold.id))

    (correction,) = explained.corrections
    assert (correction.difference, correction.uncollected) == ("+$0.00000001", "0.00000009")
    assert (explained.charged, explained.full_cost) == ("0.00000011", "0.0000002")
    assert explained.operator_loss == ""


def test_a_released_hold_has_no_lines(customer: Customer) -> None:
    hold = admit(customer)

    explained = end(hold, Release(hold.id, hold.organization_id, EndedBy.POLICY))

    assert explained.lines == []
    assert (explained.charged, explained.released) == ("0", usd(hold.amount_nanousd))
    assert explained.outcome == "A policy refused it: nothing was charged."


def test_a_row_of_an_earlier_release_shows_what_it_has(customer: Customer) -> None:
    hold = admit(customer, PRICE, Quantities(prompt=100))
    row = settle(hold, Quantities(prompt=100)).reservation
    row.bounds, row.ended_by = {}, ""

    explained = explain_charge(row)

    assert (explained.hold.amount, explained.hold.at_admission) == ("0.0000001", "")
    assert (explained.hold.bounds, explained.hold.change) == ("", "")
    assert explained.outcome == "It was charged as the backend reported."


def test_a_version_that_is_not_there_takes_nothing_else_away(customer: Customer) -> None:
    row = settle(admit(customer), Quantities(prompt=100)).reservation
    row.price_version_id = row.pk

    explained = explain_charge(row)

    assert explained.version is None
    assert [(line.price, line.amount) for line in explained.lines] == [("", "0.0003")]
    assert explained.charged == "0.0003"


S = ReservationState


@pytest.mark.parametrize(
    ("state", "basis", "ended_by", "sentence"),
    [
        (
            S.SETTLED,
            Basis.ESTIMATED,
            EndedBy.CLIENT,
            "The client left before the first token: the prompt was charged, as counted here.",
        ),
        (
            S.SETTLED,
            Basis.OBSERVED,
            EndedBy.CLIENT,
            "The client left before the end, or read nothing any more: the prompt and what was generated by "
            "then were charged, as counted here.",
        ),
        (
            S.SETTLED,
            Basis.OBSERVED,
            EndedBy.COMPLETE,
            "The answer was complete: the backend reported no usage, so it was charged as counted here.",
        ),
        (
            S.SETTLED,
            Basis.CHECKPOINT,
            EndedBy.CRASH,
            "The process that served it was lost: what was seen up to the last checkpoint was charged.",
        ),
        (S.RELEASED, "", EndedBy.SHUTDOWN, "The gateway was stopped before the end: nothing was charged."),
        (
            S.UNKNOWN,
            "",
            EndedBy.DEADLINE,
            "The deadline passed before the end: what the backend did by then is not known, and nothing is "
            "charged yet.",
        ),
        (S.HELD, "", "", "It is still running, and nothing is charged yet."),
        (S.WRITTEN_OFF, "", "", "An operator wrote it off, and nothing was charged."),
        (S.RELEASED, "", "", "Nothing was charged."),
    ],
)
def test_who_ended_it_and_what_that_means(state: S, basis: str, ended_by: str, sentence: str) -> None:
    assert outcome_sentence(Reservation(state=state, basis=basis, ended_by=ended_by)) == sentence


def test_every_way_to_end_has_a_sentence() -> None:
    for ended_by in EndedBy:
        for state in ReservationState:
            for basis in Basis if state == S.SETTLED else ("",):
                text = outcome_sentence(Reservation(state=state, basis=basis, ended_by=ended_by))
                assert text.endswith(".")
                assert ": " in text


def test_quantities_are_named() -> None:
    assert quantities_text(Quantities()) == ""
    assert quantities_text(Quantities(prompt=1, images=2, web_searches=1)) == (
        "1 prompt token, 2 images, 1 web search"
    )
