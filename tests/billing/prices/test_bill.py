from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.money import MAX_NANOUSD, PICO_IN_A_NANO, parse_price, usd
from billing.prices import bill
from billing.prices.bill import charge, cost, split
from billing.prices.card import PriceCard
from billing.prices.hold import hold_amount
from billing.prices.parts import PARTS
from billing.prices.price import Price, Quantities
from tests.billing.prices.drawn_cards import bounded_use, cards


def test_it_works() -> None:
    price = Price(prompt=parse_price("0.0000025"), completion=parse_price("0.00001"))

    assert usd(cost(price, Quantities(prompt=1_000, completion=100))) == "0.0035"


def test_a_fraction_of_a_nano_is_rounded_up_once_for_the_whole_request() -> None:
    # $0.0125 per million tokens is 12.5 nano-USD a thousand.
    price = Price(prompt=12_500, completion=12_500)

    assert cost(price, Quantities(prompt=1, completion=1)) == 25
    assert cost(Price(prompt=1), Quantities(prompt=1)) == 1
    assert cost(Price(prompt=1), Quantities(prompt=1_001)) == 2


def test_cached_tokens_have_their_own_price_and_are_not_counted_twice() -> None:
    price = Price(prompt=10_000, cached=1_000)

    assert cost(price, Quantities(prompt=100, cached=40)) == 60 * 10 + 40


def test_the_hold_is_the_formula_exactly() -> None:
    card = PriceCard.flat(prompt=2_000, cached=1_000, completion=8_000, image=5_000_000, request=3_000)

    amount = hold_amount(card, Quantities(prompt=100, completion=4 * 1_024, images=2))

    assert amount == 100 * 2 + 4 * 1_024 * 8 + 2 * 5_000 + 3


def test_the_largest_legal_hold_fits() -> None:
    card = PriceCard.flat(prompt=600_000_000, completion=600_000_000)

    amount = hold_amount(card, Quantities(completion=128 * 999_990))

    assert amount == 76_799_232_000_000
    assert amount < MAX_NANOUSD


@given(cards, bounded_use())
def test_a_charge_within_the_bounds_is_within_the_hold(
    card: PriceCard, use: tuple[Quantities, Quantities]
) -> None:
    bounds, used = use

    assert charge(card, used) <= hold_amount(card, bounds)


@given(cards, bounded_use(), st.integers(0, 10**12))
def test_lines_sum_to_the_charge_whatever_it_was_limited_to(
    card: PriceCard, use: tuple[Quantities, Quantities], limit: int
) -> None:
    charged = min(charge(card, use[1]), limit)

    lines = bill.lines(card, use[1], charged)

    assert lines
    assert {line.item for line in lines} <= {part.item for part in PARTS if part.name in card.rates}
    assert sum(line.amount_nanousd for line in lines) == charged
    assert all(line.amount_nanousd >= 0 for line in lines)
    assert len({line.item for line in lines}) == len(lines)


def test_a_use_of_nothing_has_a_line_of_zero() -> None:
    (line,) = bill.lines(PriceCard.flat(prompt=1, completion=1), Quantities(), 0)

    assert (line.item, line.quantity, line.amount_nanousd) == ("prompt", 0, 0)


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_a_split_is_whole_and_within_one_of_its_share(total: int, weights: list[int]) -> None:
    shares = split(total, weights)

    assert sum(shares) == total
    if weight := sum(weights):
        assert all(
            abs(share * weight - total * each) < weight for share, each in zip(shares, weights, strict=True)
        )


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, 2**63, float("nan")])
def test_quantities_and_prices_are_whole_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        Quantities(prompt=value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whole number"):
        Price(prompt=value)  # type: ignore[arg-type]


def test_more_cached_than_prompted_is_refused() -> None:
    with pytest.raises(ValueError, match="cached"):
        Quantities(prompt=1, cached=2)


@given(cards, bounded_use())
def test_a_cost_is_the_sum_of_its_parts(card: PriceCard, use: tuple[Quantities, Quantities]) -> None:
    parts = bill._unrounded(card, use[1])

    assert charge(card, use[1]) == -(-sum(picousd for _, _, picousd in parts) // PICO_IN_A_NANO)
