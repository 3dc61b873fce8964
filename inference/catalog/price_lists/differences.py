"""Where two price cards charge differently, part by part and tier by tier."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from billing.prices.card import PriceCard
from billing.prices.card_text import part_price, unit_of
from billing.prices.parts import PARTS, part_named

# A change by more than this is confirmed by a person.
CONFIRMED_PERCENT = 20


class PriceDifference(Struct, frozen=True):
    """Two prices of one part, for all prompts or for those with more than `over` tokens."""

    part: str
    over: int | None
    before_picousd: int
    after_picousd: int

    @property
    def label(self) -> str:
        item = part_named(self.part).item
        return item if self.over is None else f"{item} over {self.over:,} tokens"

    @property
    def before(self) -> str:
        """The first price as people read it, such as `$3`."""
        return f"${part_price(part_named(self.part), self.before_picousd)}"

    @property
    def after(self) -> str:
        """The second price as people read it, such as `$3.75`."""
        return f"${part_price(part_named(self.part), self.after_picousd)}"

    @property
    def unit(self) -> str:
        return unit_of(part_named(self.part))

    @property
    def percent(self) -> str:
        """The change as `+25 %`; empty where there was no price to compare with."""
        if not self.before_picousd:
            return ""
        # In tenths, by whole numbers: the nearest, halves up.
        change = 1_000 * (self.after_picousd - self.before_picousd)
        tenths = (2 * change + self.before_picousd) // (2 * self.before_picousd)
        sign, tenths = ("-" if tenths < 0 else "+"), abs(tenths)
        return f"{sign}{tenths // 10}.{tenths % 10} %".replace(".0 %", " %")

    @property
    def needs_confirmation(self) -> bool:
        change = abs(self.after_picousd - self.before_picousd)
        return change * 100 > CONFIRMED_PERCENT * self.before_picousd

    def __str__(self) -> str:
        percent = f" ({self.percent})" if self.percent else ""
        return f"{self.label}: {self.before} → {self.after} {self.unit}{percent}"


def differences(
    before: PriceCard, after: PriceCard, parts: Iterable[str] | None = None
) -> list[PriceDifference]:
    """
    Every price that is another in the second card: of the parts that either card prices, or of these.

    Compared is what one of a part is charged, so a part without a price of its own has that of the part it
    is charged as. A tier is named only where it differs otherwise than the shorter prompts do.
    """
    priced = [part.name for part in PARTS if part.name in before.rates or part.name in after.rates]
    names = priced if parts is None else list(parts)
    found: list[PriceDifference] = []
    last: dict[str, tuple[int, int]] = {}
    for over in (None, *sorted({*before.thresholds, *after.thresholds})):
        prompt_tokens = 0 if over is None else over + 1
        old, new = before.price_for(prompt_tokens), after.price_for(prompt_tokens)
        for name in names:
            pair = (getattr(old, name), getattr(new, name))
            if pair[0] != pair[1] and pair != last.get(name):
                found.append(PriceDifference(name, over, *pair))
            last[name] = pair
    return found
