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
        parser.add_argument(f"--{part.name}-price", metavar="USD", help=help_text)


def prices_in(options: dict[str, Any]) -> dict[str, int]:
    """The prices that were given, by the columns that hold them, in pico-USD."""
    prices = {}
    for part in PARTS:
        text = options[f"{part.name}_price"]
        if text is not None:
            try:
                prices[part.price_column] = parse_price(text)
            except ValueError as problem:
                raise CommandError(f"--{part.name}-price: {problem}") from None
    return prices


def pricing_of(model: CatalogModel) -> dict[str, str | None]:
    """Every price as a string, None where it is not set."""
    return {name: None if value is None else price_text(value) for name, value in model.prices.items()}
