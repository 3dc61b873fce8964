"""Operators write price cards per million tokens, and get back exactly what they wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.money import parse_per_million, per_million
from billing.prices.card import MAX_TIERS, PriceCard, Rate, Tier
from billing.prices.card_text import card_changes, card_rows, read_card, read_tiers, write_card, write_tiers
from billing.prices.parts import PARTS
from gateway_site.api.bodies import strict_json
from gateway_site.api.errors import InvalidRequest

WRITTEN = {
    "prompt": {"price": "3", "tiers": [{"over": 200_000, "price": "6"}]},
    "completion": {"price": "15", "tiers": [{"over": 200_000, "price": "22.5"}]},
    "cached": "0.3",
    "image": "0.002",
    "request": "0.01",
    "image_tokens": 1_800,
    "file_tokens": 60_000,
    "web_searches": 2,
}
CARD = PriceCard(
    {
        "prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),)),
        "completion": Rate(15_000_000, (Tier(200_000, 22_500_000),)),
        "cached": Rate(300_000),
        "image": Rate(2_000_000_000),
        "request": Rate(10_000_000_000),
    },
    image_tokens=1_800,
    file_tokens=60_000,
    web_searches=2,
)
prices = st.integers(0, 10**12)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    overs = draw(st.lists(st.integers(0, 10**9), unique=True, max_size=MAX_TIERS))
    return Rate(draw(prices), tuple(Tier(over, draw(prices)) for over in sorted(overs)))


@st.composite
def cards(draw: st.DrawFn) -> PriceCard:
    optional = [part.name for part in PARTS if part.is_optional]
    names = {"prompt", "completion", *draw(st.lists(st.sampled_from(optional)))}
    counts = [draw(st.integers(0, 10**9)) for _ in range(3)]
    return PriceCard({name: draw(rates()) for name in names}, *counts)


def test_a_card_is_read_and_written_per_million_tokens() -> None:
    assert read_card(WRITTEN) == CARD
    assert write_card(CARD) == WRITTEN


def test_a_plain_card_needs_two_prices() -> None:
    card = read_card({"prompt": "0.15", "completion": 1})

    assert card == PriceCard.flat(prompt=150_000, completion=1_000_000)


@given(cards())
def test_every_card_comes_back_as_it_was(card: PriceCard) -> None:
    through_a_file = strict_json.loads(json.dumps(write_card(card)).encode())

    assert read_card(through_a_file) == card
    assert read_card(through_a_file).checksum == card.checksum
    assert read_tiers(write_tiers(card)) == {
        name: rate.tiers for name, rate in card.rates.items() if rate.tiers
    }


@given(st.integers(0, 10**18))
def test_a_price_per_million_comes_back_as_it_was(picousd: int) -> None:
    assert parse_per_million(per_million(picousd)) == picousd


@pytest.mark.parametrize(
    ("text", "picousd"), [("3", 3_000_000), ("0.000001", 1), ("22.5", 22_500_000), ("0", 0)]
)
def test_a_price_per_million(text: str, picousd: int) -> None:
    assert (parse_per_million(text), per_million(picousd)) == (picousd, text)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": "1"}, r"prices\.colour: A card has no such key"),
        ({"prompt": 0.3}, r'prices\.prompt: A JSON number with a fraction is not exact: .* "0\.3"'),
        ({"prompt": True}, r"prices\.prompt: Must be a decimal string: USD per million tokens"),
        ({"image": None}, r"prices\.image: Must be a decimal string: USD per image"),
        ({"prompt": "-3"}, r"prices\.prompt: A price is not negative"),
        ({"prompt": "0.0000001"}, r"prices\.prompt: .* is finer than 6 decimal places"),
        ({"image": "0.0000000000001"}, r"prices\.image: .* is finer than 12 decimal places"),
        ({"prompt": "3,5"}, r"prices\.prompt: .* is not an amount in USD"),
        ({"prompt": "9" * 20}, r"prices\.prompt: .* is too large"),
        ({"prompt": {"tiers": []}}, r"prices\.prompt\.price: Is missing"),
        ({"prompt": {"price": "1", "tier": []}}, r"prices\.prompt\.tier: There is no such key"),
        ({"prompt": {"price": "1", "tiers": {}}}, r"prices\.prompt\.tiers: Must be a list of at most 8"),
        ({"prompt": {"price": "1", "tiers": [1]}}, r"prices\.prompt\.tiers\[0\]: Must be an object"),
        ({"prompt": {"price": "1", "tiers": [{"over": 1}]}}, r"prompt\.tiers\[0\]\.price: Is missing"),
        (
            {"prompt": {"price": "1", "tiers": [{"over": "1", "price": "2"}]}},
            r"prompt\.tiers\[0\]\.over: Must be a whole number",
        ),
        (
            {"prompt": {"price": "1", "tiers": [{"over": n, "price": "2"} for n in range(MAX_TIERS + 1)]}},
            r"prompt\.tiers: Must be a list of at most 8",
        ),
        (
            {"prompt": {"price": "1", "tiers": [{"over": n, "price": "2"} for n in (5, 5)]}},
            r"prompt\.tiers\[1\]\.over: Must be more than 5",
        ),
        ({"image_tokens": -1}, r"prices\.image_tokens: Must be a whole number"),
        ({"web_searches": "2"}, r"prices\.web_searches: Must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_card_is_named_by_its_path(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        read_card({"prompt": "3", "completion": "15", **changes}, "prices")


def test_a_card_without_a_price_of_the_completion_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="price of the completion is missing"):
        read_card({"prompt": "3"})
    with pytest.raises(InvalidRequest, match="Must be an object"):
        read_card(["prompt"])


def test_tiers_are_typed_one_length_of_prompt_a_line() -> None:
    typed = "\n Over 200000 : prompt 6, completion 22.5\r\nover 400000: prompt 12\n"

    assert read_tiers(typed) == {
        "prompt": (Tier(200_000, 6_000_000), Tier(400_000, 12_000_000)),
        "completion": (Tier(200_000, 22_500_000),),
    }
    assert write_tiers(CARD) == "over 200000: prompt 6, completion 22.5"


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("200000: prompt 6", "line 1: Must be such as"),
        ("over 200k: prompt 6", "line 1: Must be such as"),
        ("over 5: prompt 6\nover 5: completion 1", "line 2: Must be over more than 5"),
        ("over 5: colour 6", "line 1: There is no part 'colour'"),
        ("over 5: prompt 6, prompt 7", "line 1: The price of prompt is there twice"),
        ("over 5: prompt", "line 1: prompt: '' is not an amount"),
        ("over 5: prompt -6", "line 1: prompt: A price is not negative"),
        ("over 5: prompt 6,", "line 1: There is no part ''"),
    ],
)
def test_a_line_that_is_no_tier_is_named_by_its_number(typed: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        read_tiers(typed)


def test_a_card_is_shown_with_its_units() -> None:
    assert card_rows(CARD) == [
        ("prompt", "$3 per million tokens, over 200,000: $6"),
        ("completion", "$15 per million tokens, over 200,000: $22.5"),
        ("cached prompt", "$0.3 per million tokens"),
        ("image", "$0.002 per image"),
        ("request", "$0.01 per request"),
    ]


def test_what_changes_between_two_cards_is_shown() -> None:
    before = PriceCard.flat(prompt=3_000_000, completion=15_000_000, request=1_000_000)
    after = PriceCard({"prompt": Rate(6_000_000), "completion": Rate(15_000_000)}, image_tokens=1_800)

    assert card_changes(before, after) == [
        "prompt: $3 per million tokens → $6 per million tokens",
        "image_tokens: 1700 → 1800",
        "request: $0.000001 per request → not set",
    ]
    assert card_changes(before, before) == []
    assert card_changes(None, before)[0] == "prompt: $3 per million tokens"
