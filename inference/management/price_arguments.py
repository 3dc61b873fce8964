"""Prices on a command line: USD per token as decimal strings, exact."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.money import parse_price, price_text
from inference.catalog.services import PRICES
from inference.models import CatalogModel

EACH = {"prompt": "token", "completion": "token", "cached": "token", "request": "request", "image": "image"}


def add_price_arguments(parser: CommandParser) -> None:
    for name, each in EACH.items():
        parser.add_argument(f"--{name}-price", metavar="USD", help=f"USD per {each}, such as 0.0000025")


def prices_in(options: dict[str, Any]) -> dict[str, int]:
    """The prices that were given, by the columns that hold them, in pico-USD."""
    prices = {}
    for name, column in PRICES.items():
        text = options[f"{name}_price"]
        if text is not None:
            try:
                prices[column] = parse_price(text)
            except ValueError as problem:
                raise CommandError(f"--{name}-price: {problem}") from None
    return prices


def pricing_of(model: CatalogModel) -> dict[str, str | None]:
    """Every price as a string, None where it is not set."""
    values = {name: getattr(model, column) for name, column in PRICES.items()}
    return {name: None if value is None else price_text(value) for name, value in values.items()}
