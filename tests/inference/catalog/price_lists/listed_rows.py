"""A price list of two providers for tests, in the place of the library's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from genai_prices import data_snapshot
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import (
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

ACME, OTHER = "https://api.acme.example/v1", "https://other.example/v1"
Constraint = StartDateConstraint | TimeOfDateConstraint | None


def price(**usd: str) -> ModelPrice:
    return ModelPrice(**{key: Decimal(value) for key, value in usd.items()})


def plain(prompt: str = "3", completion: str = "15", **usd: str) -> ModelPrice:
    return price(input_mtok=prompt, output_mtok=completion, **usd)


def tiered(base: str, over: int, above: str) -> TieredPrices:
    return TieredPrices(Decimal(base), [Tier(over, Decimal(above))])


def with_priority(name: str, standard: ModelPrice, priority: ModelPrice) -> ModelInfo:
    """A row whose provider charges more for a service tier."""
    variant = PriceVariant({"service_tier": "priority"}, priority)
    return ModelInfo(id=name, match=ClauseStartsWith(name), prices=standard, price_variants=[variant])


def dated(*prices: tuple[Constraint, ModelPrice]) -> list[ConditionalPrice]:
    return [ConditionalPrice(constraint, prices=each) for constraint, each in prices]


@contextmanager
def price_list(acme: dict[str, Any], other: dict[str, Any] | None = None) -> Iterator[None]:
    """The library knows only these rows meanwhile: of `acme`, and of a provider named `other`."""
    providers = [
        Provider(
            id=name,
            name=name,
            api_pattern=pattern,
            models=[
                prices
                if isinstance(prices, ModelInfo)
                else ModelInfo(id=each, match=ClauseStartsWith(each), prices=prices)
                for each, prices in rows.items()
            ],
        )
        for name, pattern, rows in (
            ("acme", r"https://api\.acme\.example", acme),
            ("other", r"https://other\.example", other or {}),
        )
    ]
    data_snapshot.set_custom_snapshot(DataSnapshot(providers, from_auto_update=False))
    try:
        yield
    finally:
        data_snapshot.set_custom_snapshot(None)
