"""
Every price that the list has ever named, as a card: the hold covers the charge, and the charge is the
list's own.

The library counts as we do, with these differences that the test has to spell out: its count of cache
writes includes those for an hour, and it does not know how many tokens of a modality were read from a cache
unless that is said to be none.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage
from genai_prices.types import ModelInfo, ModelPrice

from billing.money import parse_usd
from billing.prices.bill import charge, lines
from billing.prices.card import PriceCard
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from inference.catalog.price_lists import genai_list
from inference.catalog.price_lists.conversion import Inexpressible, card_of
from inference.catalog.price_lists.entries import DatedCard

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
DRAWS = 4


def prices_of(model: ModelInfo) -> list[ModelPrice]:
    """Every price of the model: of the past, of now, announced, and at any time of the day."""
    if isinstance(model.prices, ModelPrice):
        return [model.prices]
    return [each.prices for each in model.prices]


def listed_cards() -> Iterator[tuple[str, ModelPrice, PriceCard]]:
    """Each price of each row that a card can express."""
    for row_id, model in genai_list.rows():
        for price in prices_of(model):
            card = card_of(price)
            if isinstance(card, PriceCard):
                yield row_id, price, card


def a_use(rng: random.Random, card: PriceCard) -> tuple[Quantities, Quantities]:
    """Bounds of a request, and a use within them that is often just below or above a tier."""
    top = rng.choice([100, 10_000, 400_000, *(over + rng.choice([0, 1, 50]) for over in card.thresholds)])
    prompt, completion = rng.choice([top, rng.randint(0, top)]), rng.randint(0, 64_000)
    cuts = sorted(rng.randint(0, prompt) for _ in range(4))
    shares = [cuts[0], *(after - before for before, after in itertools.pairwise(cuts))]
    rng.shuffle(shares)
    reasoning = rng.randint(0, completion)
    used = Quantities(
        prompt=prompt,
        cached=shares[0],
        cache_write=shares[1],
        cache_write_1h=shares[2],
        audio_input=shares[3],
        completion=completion,
        reasoning=reasoning,
        audio_output=rng.randint(0, completion - reasoning),
        web_searches=rng.randint(0, card.web_searches),
    )
    bounds = Quantities(
        prompt=max(prompt, top), completion=rng.randint(completion, 128_000), web_searches=card.web_searches
    )
    return bounds, used


def by_the_library(price: ModelPrice, used: Quantities) -> Decimal:
    usage = Usage(
        input_tokens=used.prompt,
        cache_read_tokens=used.cached,
        cache_write_tokens=used.cache_write + used.cache_write_1h,
        cache_write_5m_tokens=used.cache_write,
        cache_write_1h_tokens=used.cache_write_1h,
        input_audio_tokens=used.audio_input,
        cache_audio_read_tokens=0,
        cache_audio_write_tokens=0,
        output_tokens=used.completion,
        output_reasoning_tokens=used.reasoning,
        output_audio_tokens=used.audio_output,
        output_audio_reasoning_tokens=0,
        web_searches=used.web_searches,
    )
    return price.calc_price(usage)["total_price"]


@pytest.mark.slow
def test_the_hold_covers_the_charge_and_the_charge_is_what_the_list_computes() -> None:
    rng = random.Random(20_261_115)
    rows = 0
    for name, price, card in listed_cards():
        rows += 1
        for _ in range(DRAWS):
            bounds, used = a_use(rng, card)
            charged = charge(card, used)

            assert charged <= hold_amount(card, bounds), name
            assert sum(line.amount_nanousd for line in lines(card, used, charged)) == charged, name
            # Rounded up once, to a whole nano-USD.
            exact = by_the_library(price, used) * 10**9
            assert 0 <= charged - exact < 1, name

    assert rows > 1_900


def family_counts() -> dict[str, tuple[int, int]]:
    """How many rows of a family there are, and how many of them a card can express now."""
    counts: Counter[tuple[str, bool]] = Counter()
    for row_id, model in genai_list.rows():
        current = genai_list.dated_cards(model, NOW)[0][0]
        for family in ("", "claude", "gpt-5", "gemini-3", "grok-4"):
            if family in row_id:
                counts[family, isinstance(current, DatedCard)] += 1
    return {
        family: (counts[family, True] + counts[family, False], counts[family, True]) for family, _ in counts
    }


def test_most_rows_of_the_list_are_cards() -> None:
    counts = family_counts()

    assert all(expressible == rows for rows, expressible in (counts["claude"], counts["gpt-5"]))
    for family, share in (("", 0.8), ("gemini-3", 0.5), ("grok-4", 0.9)):
        rows, expressible = counts[family]
        assert expressible >= share * rows, (family, counts[family])


# --- a Claude model, by hand ----------------------------------------------------------------------------


def listed_card(row_id: str) -> PriceCard:
    card = card_of(dict(genai_list.rows())[row_id].get_prices(NOW))
    assert not isinstance(card, Inexpressible)
    return card


@pytest.mark.parametrize(
    ("name", "used", "expected"),
    [
        # $3.75 for a million tokens that are written to the cache for five minutes, $6 for an hour.
        ("claude-sonnet-4-5", Quantities(prompt=9_000, cache_write=9_000), "0.03375"),
        ("claude-sonnet-4-5", Quantities(prompt=9_000, cache_write_1h=9_000), "0.054"),
        # $3 and $15 up to 200,000 prompt tokens; above, the whole request costs $6 and $22.50.
        ("claude-sonnet-4-5", Quantities(prompt=200_000, completion=1_000), "0.615"),
        ("claude-sonnet-4-5", Quantities(prompt=300_000, completion=1_000), "1.8225"),
        # 291,000 at $6 and 9,000 cache writes at $7.50.
        ("claude-sonnet-4-5", Quantities(prompt=300_000, cache_write=9_000), "1.8135"),
        # 280,000 at $6 and 20,000 cache reads at $0.60.
        ("claude-sonnet-4-5", Quantities(prompt=300_000, cached=20_000), "1.692"),
        # A thousand searches cost $10.
        ("claude-sonnet-4-5", Quantities(prompt=0, web_searches=1), "0.01"),
        # $0.10, $0.125 for cache writes and $0.50 up to 100,000 prompt tokens; above, five times as much.
        ("claude-haiku-5-5", Quantities(prompt=9_000, cache_write=9_000), "0.001125"),
        ("claude-haiku-5-5", Quantities(prompt=100_000, completion=1_000), "0.0105"),
        ("claude-haiku-5-5", Quantities(prompt=300_000, completion=1_000), "0.1525"),
        ("claude-haiku-5-5", Quantities(prompt=300_000, cache_write=9_000), "0.151125"),
    ],
)
def test_a_claude_model_charges_cache_writes_and_long_prompts_as_its_provider_does(
    name: str, used: Quantities, expected: str
) -> None:
    assert charge(listed_card(f"anthropic/{name}"), used) == parse_usd(expected)
