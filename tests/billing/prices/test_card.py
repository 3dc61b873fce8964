from __future__ import annotations

import pytest
from hypothesis import given

from billing.prices.bill import charge, lines
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.price import Quantities
from tests.billing.prices.drawn_cards import cards

LONG = 200_000
CARD = PriceCard(
    {
        "prompt": Rate(3_000_000, (Tier(LONG, 6_000_000),)),
        "completion": Rate(15_000_000, (Tier(LONG, 22_500_000),)),
        "cached": Rate(300_000),
        "cache_write": Rate(3_750_000),
    }
)


def test_it_works() -> None:
    used = Quantities(prompt=1_000, cached=400, completion=100)

    assert charge(CARD, used) == 600 * 3_000 + 400 * 300 + 100 * 15_000


def test_a_longer_prompt_makes_every_token_of_the_request_dearer() -> None:
    assert CARD.price_for(LONG).prompt == 3_000_000
    assert CARD.price_for(LONG + 1).prompt == 6_000_000
    assert CARD.price_for(LONG + 1).completion == 22_500_000
    assert (CARD.tier_of(LONG), CARD.tier_of(LONG + 1)) == (None, LONG)
    assert charge(CARD, Quantities(prompt=300_000, completion=10)) == 300_000 * 6_000 + 10 * 22_500


def test_a_part_without_a_price_is_charged_as_another_and_has_no_line() -> None:
    used = Quantities(
        prompt=100, cache_write=10, cache_write_1h=20, audio_input=5, completion=50, reasoning=40
    )

    assert CARD.charged(used) == Quantities(prompt=100, cache_write=30, completion=50)
    found = {line.item: line.quantity for line in lines(CARD, used, charge(CARD, used))}
    assert found == {"prompt": 70, "cache write": 30, "completion": 50}


def test_what_costs_nothing_by_itself_has_no_line() -> None:
    used = Quantities(prompt=1, images=3, web_searches=2)

    assert [line.item for line in lines(CARD, used, charge(CARD, used))] == ["prompt"]


def test_a_hold_takes_the_dearest_tier_that_can_be_reached() -> None:
    cheaper_when_long = PriceCard({"prompt": Rate(9, (Tier(100, 4),)), "completion": Rate(1)})

    assert cheaper_when_long.dearest(1_000).prompt == 9
    assert CARD.dearest(LONG).prompt == 3_750_000  # as a cache write
    assert CARD.dearest(LONG + 1).prompt == 6_000_000


@given(cards)
def test_a_card_is_stored_and_read_back_as_it_was(card: PriceCard) -> None:
    again = PriceCard.from_json(card.to_json())

    assert again == card
    assert again.checksum == card.checksum


def test_equal_cards_have_one_checksum_however_they_were_written() -> None:
    one = PriceCard({"prompt": Rate(1), "completion": Rate(2)})
    other = PriceCard({"completion": Rate(2), "prompt": Rate(1)})

    assert one.checksum == other.checksum
    assert one.checksum != PriceCard({"prompt": Rate(1), "completion": Rate(3)}).checksum


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        ({"prompt": Rate(1)}, "completion is missing"),
        ({"completion": Rate(1)}, "prompt is missing"),
        ({"prompt": Rate(1), "completion": Rate(1), "video": Rate(1)}, "no part 'video'"),
        ({"prompt": Rate(-1), "completion": Rate(1)}, "whole number"),
        ({"prompt": Rate(1, (Tier(5, 1), Tier(5, 2))), "completion": Rate(1)}, "in order"),
        ({"prompt": Rate(1, (Tier(-5, 1),)), "completion": Rate(1)}, "tiers"),
        ({"prompt": Rate(1, tuple(Tier(i, 1) for i in range(9))), "completion": Rate(1)}, "at most 8 tiers"),
    ],
)
def test_a_card_that_says_nothing_sensible_is_refused(rates: dict[str, Rate], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PriceCard(rates)
