"""A price that is hardly meant is asked about before a customer pays it."""

from __future__ import annotations

import pytest

from billing.money import parse_per_million, parse_price, price_text
from billing.prices.card import PriceCard
from billing.prices.card_text import read_card
from billing.prices.plausibility import ImplausiblePrice, problems, require_plausible
from gateway_site.api.errors import InvalidRequest

# USD per million tokens of a prompt and of a completion, from the cheapest to the dearest models.
REAL_PRICES = [("0.02", "0.03"), ("0.15", "0.6"), ("3", "15"), ("1.25", "10"), ("150", "600"), ("0", "0")]


def flat(prompt: str, completion: str, **others: str) -> PriceCard:
    return read_card({"prompt": prompt, "completion": completion, **others})


@pytest.mark.parametrize(("prompt", "completion"), REAL_PRICES)
def test_a_usual_card_passes(prompt: str, completion: str) -> None:
    assert problems(flat(prompt, completion), None) == []


def test_a_card_with_tiers_and_discounts_passes() -> None:
    card = read_card(
        {
            "prompt": {"price": "3", "tiers": [{"over": 200_000, "price": "6"}]},
            "completion": {"price": "15", "tiers": [{"over": 200_000, "price": "22.5"}]},
            "cached": "0.3",
            "cache_write": "3.75",
            "cache_write_1h": "6",
            "image": "0.002",
            "web_search": "0.01",
        }
    )

    assert problems(card, flat("3", "15")) == []


@pytest.mark.parametrize(("prompt", "completion"), REAL_PRICES[:-1])
def test_a_price_of_a_million_tokens_is_not_taken_for_that_of_one(prompt: str, completion: str) -> None:
    a_million_times = PriceCard.flat(prompt=parse_price(prompt), completion=parse_price(completion))

    assert any("is more than $1000 per million tokens" in each for each in problems(a_million_times, None))


@pytest.mark.parametrize(("prompt", "completion"), REAL_PRICES[:-1])
def test_a_price_of_one_token_is_not_taken_for_that_of_a_million(prompt: str, completion: str) -> None:
    of_one = [price_text(parse_per_million(each)) for each in (prompt, completion)]

    with pytest.raises(
        InvalidRequest, match=r"is less than \$0\.001 per million|finer than 6 decimal places"
    ):
        require_plausible(flat(*of_one), None)


@pytest.mark.parametrize(
    ("card", "complaint"),
    [
        (flat("0.000003", "0.000015"), "prompt: $0.000003 per million tokens is less than $0.001"),
        (flat("3", "1001"), "completion: $1001 per million tokens is more than $1000 per million tokens."),
        (flat("3", "0.2"), "completion: $0.2 per million tokens is less than a tenth of the prompt's $3."),
        (flat("3", "0"), "completion: $0 per million tokens is less than a tenth of the prompt's $3."),
        (
            flat("3", "301"),
            "completion: $301 per million tokens is more than a hundred times the prompt's $3.",
        ),
        (
            flat("3", "15", cached="30"),
            "cached prompt: $30 per million tokens is dearer than the prompt's $3",
        ),
        (flat("3", "15", web_search="10"), "web search: $10 per search is more than $1 per search."),
        (flat("3", "15", image="0.0000003"), "image: $0.0000003 per image is less than $0.000001 per image."),
    ],
)
def test_what_is_hardly_meant_is_named(card: PriceCard, complaint: str) -> None:
    assert any(each.startswith(complaint) for each in problems(card, None)), problems(card, None)


def test_a_tier_is_looked_at_too() -> None:
    tiers = {"price": "3", "tiers": [{"over": 200_000, "price": "0.000006"}]}

    assert problems(read_card({"prompt": tiers, "completion": "15"}), None) == [
        "prompt over 200,000 tokens: $0.000006 per million tokens is less than $0.001 per million tokens.",
        "completion over 200,000 tokens: $15 per million tokens is more than a hundred times the prompt's "
        "$0.000006.",
        "prompt over 200,000 tokens: $0.000006 per million tokens is cheaper than the $3 of shorter prompts.",
    ]


@pytest.mark.parametrize(
    ("before", "after", "is_asked"),
    [
        ("3", "6", False),
        ("3", "29.9", False),
        ("3", "30", True),
        ("30", "3", True),
        ("3", "0", True),
        ("0", "3", True),
    ],
)
def test_a_price_that_jumps_is_asked_about(before: str, after: str, is_asked: bool) -> None:
    old, new = flat(before, "15"), flat(after, "15")

    found = [each for each in problems(new, old) if "factor of 10" in each]

    assert found == (
        [f"prompt: from ${before} to ${after} per million tokens is a change by a factor of 10 or more."]
        if is_asked
        else []
    )


def test_a_new_discount_for_cached_tokens_is_no_jump() -> None:
    assert problems(flat("3", "15", cached="0.3"), flat("3", "15")) == []


def test_prices_that_somebody_confirms_pass() -> None:
    card = flat("3000000", "15")

    with pytest.raises(
        ImplausiblePrice, match=r"Are the prices of m right\? prompt: \$3000000.*--yes"
    ) as refusal:
        require_plausible(card, None, about="m")
    assert refusal.value.problems == problems(card, None)
    require_plausible(card, None, is_confirmed=True)
