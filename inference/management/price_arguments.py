"""Prices on a command line: USD per token as decimal strings, exact."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.money import parse_price, price_text
from billing.prices.parts import PARTS
from inference.models import CatalogModel


def add_price_arguments(parser: CommandParser) -> None:
    """Add an option for the price of each part."""
    for part in PARTS:
        help_text = f"USD per {part.unit}, such as 0.0000025"
        parser.add_argument(f"--{part.name.replace('_', '-')}-price", metavar="USD", help=help_text)


def prices_in(options: dict[str, Any]) -> dict[str, int]:
    """The prices that were given, by part, in pico-USD."""
    prices = {}
    for part in PARTS:
        text = options[f"{part.name}_price"]
        if text is not None:
            try:
                prices[part.name] = parse_price(text)
            except ValueError as problem:
                raise CommandError(f"--{part.name.replace('_', '-')}-price: {problem}") from None
    return prices


def pricing_of(model: CatalogModel) -> dict[str, str]:
    """Every price that is set as a string, by part; nothing where the model has no price."""
    rates = model.price_version.card.rates if model.price_version else {}
    return {name: price_text(rate.picousd) for name, rate in rates.items()}
