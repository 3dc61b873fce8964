"""
Whether prices are what somebody meant: the errors that people make, found before a customer pays them.

The usual one is a price of one token typed where that of a million belongs, or the reverse: a factor of a
million, which no bound on real prices lets pass. None of this is an impossible price. Whoever says that
the prices are right gets them.
"""

from __future__ import annotations

from collections.abc import Iterator

from billing.prices.card import PriceCard, Rate
from billing.prices.card_text import part_price, price_with_unit
from billing.prices.parts import PARTS, PricePart, part_named
from gateway_site.api.errors import InvalidRequest

# Of a million tokens $0.001 and $1,000; of one image, search or request a millionth of a dollar and $1.
TOKEN_PICOUSD_RANGE = (1_000, 10**9)
EACH_PICOUSD_RANGE = (10**6, 10**12)
# A version that changes a price by so much is rather a slip than a new price.
MOST_CHANGE = 10
# Providers charge two to eight times the prompt's price for a token of the completion; some as much.
LEAST_COMPLETION, MOST_COMPLETION = 10, 100


class ImplausiblePrice(InvalidRequest):
    """Prices that are hardly meant. `problems` has a sentence for each."""

    code = "implausible_price"

    def __init__(self, problems: list[str], *, about: str = "") -> None:
        self.problems = problems
        named = f" of {about}" if about else ""
        super().__init__(f"Are the prices{named} right? {' '.join(problems)} If so, confirm them (--yes).")


def require_plausible(
    card: PriceCard, before: PriceCard | None, *, is_confirmed: bool = False, about: str = ""
) -> None:
    """Raise ImplausiblePrice for prices that are hardly meant, unless somebody has confirmed them."""
    if not is_confirmed and (found := problems(card, before)):
        raise ImplausiblePrice(found, about=about)


def problems(card: PriceCard, before: PriceCard | None) -> list[str]:
    """What is hardly meant in a card that replaces `before`, a sentence each. Empty: nothing."""
    return [
        *_out_of_range(card),
        *_out_of_proportion(card),
        *_falling_tiers(card),
        *(_changed_too_much(card, before) if before is not None else ()),
    ]


def _out_of_range(card: PriceCard) -> Iterator[str]:
    for part, rate in _rates(card):
        least, most = TOKEN_PICOUSD_RANGE if part.is_per_token else EACH_PICOUSD_RANGE
        for over, picousd in [(None, rate.picousd), *((tier.over, tier.picousd) for tier in rate.tiers)]:
            if picousd > most:
                bound = f"more than {price_with_unit(part, most)}"
            elif 0 < picousd < least:
                bound = f"less than {price_with_unit(part, least)}"
            else:
                continue
            yield f"{_name(part, over)}: {price_with_unit(part, picousd)} is {bound}."


def _out_of_proportion(card: PriceCard) -> Iterator[str]:
    for over in (None, *card.thresholds):
        price = card.price_for(0 if over is None else over + 1)
        prompt, completion = part_named("prompt"), part_named("completion")
        shown = f"{_name(completion, over)}: {price_with_unit(completion, price.completion)}"
        against = f"the prompt's ${part_price(prompt, price.prompt)}"
        if price.completion * LEAST_COMPLETION < price.prompt:
            yield f"{shown} is less than a tenth of {against}."
        elif price.prompt and price.completion > price.prompt * MOST_COMPLETION:
            yield f"{shown} is more than a hundred times {against}."
        if price.cached > price.prompt:
            cached = part_named("cached")
            yield (
                f"{_name(cached, over)}: {price_with_unit(cached, price.cached)} is dearer than {against}, "
                "which reading from a cache should save."
            )


def _falling_tiers(card: PriceCard) -> Iterator[str]:
    for part, rate in _rates(card):
        before = rate.picousd
        for tier in rate.tiers:
            if tier.picousd < before:
                shown = f"{_name(part, tier.over)}: {price_with_unit(part, tier.picousd)}"
                yield f"{shown} is cheaper than the ${part_price(part, before)} of shorter prompts."
            before = tier.picousd


def _changed_too_much(card: PriceCard, before: PriceCard) -> Iterator[str]:
    for part, rate in _rates(card):
        # A price that a part did not have of its own is no change of one: a discount for cached tokens
        # is usually a tenth.
        if part.name not in before.rates:
            continue
        seen = set()
        for over in (None, *sorted({*card.thresholds, *before.thresholds})):
            prompt_tokens = 0 if over is None else over + 1
            old, new = before.rates[part.name].at(prompt_tokens), rate.at(prompt_tokens)
            low, high = sorted((old, new))
            if low != high and high >= low * MOST_CHANGE and (old, new) not in seen:
                seen.add((old, new))
                change = f"from ${part_price(part, old)} to {price_with_unit(part, new)}"
                yield f"{_name(part, over)}: {change} is a change by a factor of {MOST_CHANGE} or more."


def _rates(card: PriceCard) -> Iterator[tuple[PricePart, Rate]]:
    return ((part, card.rates[part.name]) for part in PARTS if part.name in card.rates)


def _name(part: PricePart, over: int | None) -> str:
    return part.item if over is None else f"{part.item} over {over:,} tokens"
