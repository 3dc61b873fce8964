"""
A row of the genai-prices list as a price card, exactly or not at all.

The list has USD per million tokens (`input_mtok`) and per thousand of other things (`web_searches_kcount`);
a card has whole pico-USD for one. A price that a card cannot say is not made to fit: the row is refused,
with the key that is in the way.

The list's variants for batches and service tiers are not read: a card has one price for all, and requests
here can ask for neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from msgspec import Struct

from billing.money import PICO_DIGITS
from billing.prices.card import PriceCard, Rate, Tier

# The keys that are a part of a card, by how many a price is for.
PER_MILLION = {
    "input_mtok": "prompt",
    "output_mtok": "completion",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "audio_input",
    "output_reasoning_mtok": "reasoning",
    "output_audio_mtok": "audio_output",
}
PER_THOUSAND = {"web_searches_kcount": "web_search", "requests_kcount": "request"}
# What has no part of its own is counted as something else here. Where both cost the same, nothing is lost.
COUNTED_AS = {
    "cache_write_5m_mtok": "cache_write_mtok",
    "cache_audio_read_mtok": "cache_read_mtok",
    "cache_image_read_mtok": "cache_read_mtok",
    "cache_text_read_mtok": "cache_read_mtok",
    "cache_video_read_mtok": "cache_read_mtok",
    "input_image_mtok": "input_mtok",
    "input_text_mtok": "input_mtok",
    "input_video_mtok": "input_mtok",
    "output_citation_mtok": "output_mtok",
    "output_image_mtok": "output_mtok",
    "output_text_mtok": "output_mtok",
    "output_video_mtok": "output_mtok",
}
# Prices of tools that a request cannot ask for here, and so never has to pay.
UNASKABLE = {"storage_searches_kcount": "searches in stored files"}
# How many searches a hold assumes where they are priced. No list and no provider says how many a model makes
# at most, so this is an assumption and not a bound: nearly every request that searches does so once. What a
# request searches beyond it is charged while there is credit, like all use above a hold. An operator who
# knows better sets another number on the model's card, which later prices keep.
ASSUMED_SEARCHES = 1


class Inexpressible(Struct, frozen=True):
    """Why a card cannot say what the list says."""

    reason: str


def card_of(price: Any) -> PriceCard | Inexpressible:
    """The card of one of the list's `ModelPrice` objects, or why there is none."""
    prices = {key: value for key, value in vars(price).items() if value is not None}
    if problems := _problems_with(prices):
        return Inexpressible(" ".join(problems))
    parts = PER_MILLION | PER_THOUSAND
    rates: dict[str, Rate] = {}
    try:
        for key, part in parts.items():
            if key in prices:
                rates[part] = _rate(prices[key], 1_000_000 if key in PER_MILLION else 1_000)
        return PriceCard(rates, web_searches=ASSUMED_SEARCHES if "web_search" in rates else 0)
    except ValueError as problem:
        return Inexpressible(str(problem))


def notes_on(price: Any) -> list[str]:
    """What a card leaves out of a row that it can express, a sentence each."""
    return [
        f"The price of {UNASKABLE[key]} is left out: requests cannot ask for them here."
        for key, value in vars(price).items()
        if value is not None and key in UNASKABLE
    ]


def _problems_with(prices: Mapping[str, Any]) -> list[str]:
    if not prices:
        return ["The list names the model without any price."]
    problems = []
    for key in prices:
        same = COUNTED_AS.get(key)
        if same and prices[key] != prices.get(same):
            problems.append(f"{key} is another price than {same}, and a card has one for both.")
        elif not same and key not in PER_MILLION and key not in PER_THOUSAND and key not in UNASKABLE:
            problems.append(f"A card has no part for {key}.")
    missing = [key for key in ("input_mtok", "output_mtok") if key not in prices]
    if missing:
        problems.append(f"The list has no {' and no '.join(missing)}, which every request here uses.")
    return problems


def _rate(value: Any, per: int) -> Rate:
    if isinstance(value, Decimal):
        return Rate(_picousd(value, per))
    # A tier is for the whole request whose prompt has more than `start` tokens, there as here.
    tiers = tuple(Tier(tier.start, _picousd(tier.price, per)) for tier in value.tiers)
    return Rate(_picousd(value.base, per), tiers)


def _picousd(price: Decimal, per: int) -> int:
    exact = Fraction(price) * Fraction(10**PICO_DIGITS, per)
    if exact.denominator != 1:
        raise ValueError(f"${price} for {per:,} is finer than a pico-USD for one.")
    return exact.numerator
