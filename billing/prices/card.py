"""
A price card: what a model charges for each part, with tiers by the length of the prompt.

    card = PriceCard({"prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),)), "completion": Rate(15_000_000)})
    card.price_for(250_000)     the flat Price of a request with so many prompt tokens: 6_000_000 a token
    card.dearest(180_000)       the flat Price that no request with at most so many can exceed
    card.charged(quantities)    the quantities as the card prices them, each under a part that it has

A tier applies to the whole request whose prompt is longer than `over` tokens, not to the tokens above it:
that is how providers bill long prompts. Nothing here touches a database; `billing.prices.versions` does.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from billing.money import MAX_NANOUSD
from billing.prices.parts import PARTS, QUANTITIES, PricePart, part_named, parts_within
from billing.prices.price import MAX_QUANTITY, Price, Quantities

MAX_TIERS = 8
# What providers count at most for an image of the usual sizes, and for a document of a few dozen pages.
DEFAULT_IMAGE_TOKENS = 1_700
DEFAULT_FILE_TOKENS = 50_000


class Tier(Struct, frozen=True):
    """The price of a part for a request whose prompt has more than `over` tokens."""

    over: int
    picousd: int


class Rate(Struct, frozen=True, omit_defaults=True):
    """The price of one part, in pico-USD, and the tiers that replace it for longer prompts."""

    picousd: int
    tiers: tuple[Tier, ...] = ()

    def at(self, prompt_tokens: int) -> int:
        """The price for a request with so many prompt tokens."""
        found = self.picousd
        for tier in self.tiers:
            if prompt_tokens > tier.over:
                found = tier.picousd
        return found

    def dearest(self, prompt_tokens: int) -> int:
        """The highest price for a request with at most so many prompt tokens."""
        return max([self.picousd, *(tier.picousd for tier in self.tiers if prompt_tokens > tier.over)])


class BillEntry(NamedTuple):
    """A part in the order of a bill: its item, and where its price and its quantities are found."""

    item: str
    price: int
    # None: there is one in each request.
    quantity: int | None
    # The quantities that are counted in its own, and charged elsewhere.
    within: tuple[int, ...]


class PriceCard(Struct, frozen=True, omit_defaults=True, dict=True):
    """What a model charges. Parts that are not in `rates` are charged as their `charged_as` says."""

    rates: dict[str, Rate]
    # The most prompt tokens that the model counts for one image, and for one file or clip of audio. A hold
    # assumes them.
    image_tokens: int = DEFAULT_IMAGE_TOKENS
    file_tokens: int = DEFAULT_FILE_TOKENS
    # The most searches that the model makes for one request. A hold for a request that may search assumes
    # them.
    web_searches: int = 0

    def __post_init__(self) -> None:
        for name, rate in self.rates.items():
            if name not in {part.name for part in PARTS}:
                raise ValueError(f"A price has no part {name!r}.")
            _check_rate(name, rate)
        for part in PARTS:
            if not part.is_optional and part.name not in self.rates:
                raise ValueError(f"The price of the {part.item} is missing.")
        for name in ("image_tokens", "file_tokens", "web_searches"):
            if not _is_count(getattr(self, name), MAX_QUANTITY // 1_000):
                raise ValueError(f"{name} must be a whole number of at most a billion.")

    @cached_property
    def thresholds(self) -> list[int]:
        """The prompt lengths above which a price changes, in order."""
        return sorted({tier.over for rate in self.rates.values() for tier in rate.tiers})

    def tier_of(self, prompt_tokens: int) -> int | None:
        """The highest threshold that a prompt of this length is over; None below all of them."""
        return max((over for over in self.thresholds if prompt_tokens > over), default=None)

    def price_for(self, prompt_tokens: int) -> Price:
        """The flat price of a request with so many prompt tokens."""
        return self._reading(prompt_tokens)[0]

    def dearest(self, prompt_tokens: int) -> Price:
        """
        The flat price that no request with at most so many prompt tokens exceeds.

        Each part has the highest price that one of it may cost: by any tier that can be reached, and as any
        of the parts that are counted in it. A discount for cached tokens is never assumed; a surcharge is.
        """
        return self._reading(prompt_tokens)[1]

    def charged(self, used: Quantities) -> Quantities:
        """The quantities, with what the card has no price for counted as the part it is charged as."""
        if not self._unpriced or not any(self._unpriced_counts(msgspec.structs.astuple(used))):
            return used
        counts = msgspec.structs.asdict(used)
        for part in self._unpriced:
            if part.charged_as:
                counts[part_named(part.charged_as).quantity] += counts[part.quantity]
            counts[part.quantity] = 0
        return Quantities(**counts)

    @property
    def checksum(self) -> str:
        """A digest of all that the card says, whatever the order it was written in."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The card as plain JSON values, as it is stored."""
        plain: dict[str, Any] = msgspec.to_builtins(self, order="sorted")
        return plain

    @classmethod
    def from_json(cls, stored: Any) -> PriceCard:
        return msgspec.convert(stored, cls)

    @classmethod
    def flat(cls, **picousd: int) -> PriceCard:
        """A card without tiers: one price for each part that is named."""
        return cls({name: Rate(price) for name, price in picousd.items()})

    # --- every reading of the card, made once: each request needs two of them --------------------------

    def _reading(self, prompt_tokens: int) -> tuple[Price, Price]:
        readings = self._readings
        if len(readings) == 1:
            return readings[0]
        return readings[sum([prompt_tokens > over for over in self.thresholds])]

    @cached_property
    def _readings(self) -> list[tuple[Price, Price]]:
        """The price and the dearest price below the first threshold, and above each."""
        return [self._read(prompt_tokens) for prompt_tokens in (0, *(over + 1 for over in self.thresholds))]

    def _read(self, prompt_tokens: int) -> tuple[Price, Price]:
        rates = {part.name: self._rate_of(part) for part in PARTS}
        dearest = {name: rate.dearest(prompt_tokens) for name, rate in rates.items()}
        return (
            Price(**{name: rate.at(prompt_tokens) for name, rate in rates.items()}),
            Price(
                **{
                    part.name: max(dearest[each.name] for each in (part, *parts_within(part)))
                    for part in PARTS
                }
            ),
        )

    def _rate_of(self, part: PricePart) -> Rate:
        """The rate that a part is charged by: its own, or that of the part it is charged as."""
        name = part.name
        while name and name not in self.rates:
            name = part_named(name).charged_as or part_named(name).within
        return self.rates[name] if name else Rate(0)

    @cached_property
    def bill_order(self) -> list[BillEntry]:
        """The parts that the card prices, in the order of a bill: what is within another stands below it."""
        ordered = [each for whole in PARTS if not whole.within for each in (whole, *parts_within(whole))]
        return [
            BillEntry(
                part.item,
                PARTS.index(part),
                QUANTITIES.index(part.quantity) if part.quantity else None,
                tuple(
                    QUANTITIES.index(other.quantity)
                    for other in parts_within(part)
                    if other.name in self.rates
                ),
            )
            for part in ordered
            if part.name in self.rates
        ]

    @cached_property
    def _unpriced_counts(self) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
        indexes = [QUANTITIES.index(part.quantity) for part in self._unpriced]
        # One more than none: of a single index, it would be no tuple.
        return itemgetter(*indexes, indexes[0])

    @cached_property
    def _unpriced(self) -> list[PricePart]:
        """The parts without a price, which cost nothing or are charged as others: as siblings first."""
        return sorted(
            (part for part in PARTS if part.quantity and part.name not in self.rates),
            key=lambda part: not part.charged_as,
        )


class CardVersion(Struct, frozen=True):
    """A card as it is stored, with the id of its version."""

    id: uuid.UUID
    card: PriceCard


def _check_rate(name: str, rate: Rate) -> None:
    prices = [rate.picousd, *(tier.picousd for tier in rate.tiers)]
    if not all(_is_count(price, MAX_NANOUSD) for price in prices):
        raise ValueError(f"The price of {name} must be a whole number of pico-USD.")
    overs = [tier.over for tier in rate.tiers]
    if len(overs) > MAX_TIERS or not all(_is_count(over, MAX_QUANTITY) for over in overs):
        raise ValueError(f"The price of {name} has at most {MAX_TIERS} tiers, each over a count of tokens.")
    if overs != sorted(set(overs)):
        raise ValueError(f"The tiers of {name} must be in order, each over more tokens than the one before.")


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
