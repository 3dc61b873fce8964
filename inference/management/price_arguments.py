"""Prices on a command line: USD per million tokens or per token, as decimal strings, exact."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from msgspec import Struct

from billing.money import parse_per_million, parse_price, price_text
from billing.prices import versions
from billing.prices.card import PriceCard
from billing.prices.card_text import COUNTS, card_of, read_card, read_valid_from
from billing.prices.parts import PARTS, PricePart
from gateway_site.api.bodies import strict_json
from gateway_site.api.errors import InvalidRequest

MAX_CARD_BYTES = 64 * 1024
COUNT_HELP = {
    "image_tokens": "the most prompt tokens that the model counts for an image",
    "file_tokens": "the most prompt tokens that the model counts for a file or a clip of audio",
    "web_searches": "the most searches that the model makes for a request",
}


class PriceOptions(Struct, frozen=True):
    """What a command line says about prices: a whole card, or changes to the one that is in force."""

    prices: dict[str, int]
    counts: dict[str, int]
    card: PriceCard | None = None
    valid_from: datetime | None = None
    # Somebody said that they are right, though they be implausible.
    is_confirmed: bool = False

    def card_for(self, model_id: str) -> PriceCard | None:
        """The whole card that a model is to have, or None where the command line leaves it as it is."""
        if self.card is not None or not (self.prices or self.counts):
            return self.card
        before = versions.in_force_for(model_id, self.valid_from)
        return self._changed(before.card if before else None)

    def card_of_new_model(self) -> PriceCard | None:
        """The card that a model gets which has none yet, or None where no price is given."""
        return self.card if self.card is not None or not (self.prices or self.counts) else self._changed(None)

    def _changed(self, before: PriceCard | None) -> PriceCard:
        card = versions.changed_card(before, self.prices)
        if card is None:
            raise InvalidRequest("There is no price yet: give those of the prompt and the completion.")
        return card_of(card.rates, {**{name: getattr(card, name) for name in COUNTS}, **self.counts})


def add_price_arguments(parser: CommandParser) -> None:
    """Add the options for the price of each part, for a card in a file, and for when they apply."""
    group = parser.add_argument_group("prices", "in USD; a price that is not given stays as it is")
    for part in PARTS:
        if part.is_per_token:
            group.add_argument(
                _option(part, "per-million"), metavar="USD", help="per million tokens, such as 2.5"
            )
        group.add_argument(_option(part, "price"), metavar="USD", help=f"per {part.unit}")
    for name in COUNTS:
        group.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=COUNT_HELP[name])
    group.add_argument("--card", metavar="FILE.json", help="the whole card, with its tiers, as JSON")
    group.add_argument(
        "--valid-from",
        type=_moment,
        metavar="TIME",
        help="when they begin to apply, such as 2026-12-01T00:00Z",
    )
    group.add_argument("--yes", action="store_true", help="the prices are right, though they be implausible")


def price_options(options: dict[str, Any]) -> PriceOptions:
    """The prices that were given, checked one by one."""
    prices = {part.name: price for part in PARTS if (price := _price_in(options, part)) is not None}
    counts = {name: options[name] for name in COUNTS if options[name] is not None}
    card = None
    if options["card"] is not None:
        if prices or counts:
            raise CommandError("--card is the whole card: give no other prices with it.")
        card = _card_in(options["card"])
    return PriceOptions(prices, counts, card, options["valid_from"], options["yes"])


def pricing_of(card: PriceCard | None) -> dict[str, str]:
    """Every price that is set, in USD per token (or image, search, request), by part."""
    rates = card.rates if card else {}
    return {name: price_text(rate.picousd) for name, rate in rates.items()}


def file_bytes(name: str, most: int) -> bytes:
    """What is in a file of a bounded size."""
    try:
        with Path(name).open("rb") as file:
            content = file.read(most + 1)
    except OSError as problem:
        raise CommandError(f"{name} cannot be read: {problem.strerror}.") from None
    if len(content) > most:
        raise CommandError(f"{name} has more than {most} bytes.")
    return content


def _price_in(options: dict[str, Any], part: PricePart) -> int | None:
    of_million, of_one = options.get(f"{part.name}_per_million"), options[f"{part.name}_price"]
    if of_million is not None and of_one is not None:
        raise CommandError(f"Give {_option(part, 'per-million')} or {_option(part, 'price')}, not both.")
    suffix = "price" if of_million is None else "per-million"
    try:
        if of_million is not None:
            return parse_per_million(of_million)
        return None if of_one is None else parse_price(of_one)
    except ValueError as problem:
        raise CommandError(f"{_option(part, suffix)}: {problem}") from None


def _card_in(name: str) -> PriceCard:
    try:
        return read_card(strict_json.loads(file_bytes(name, MAX_CARD_BYTES)))
    except InvalidRequest as problem:
        raise CommandError(f"{name}: {problem.message}") from None


def _moment(text: str) -> datetime:
    """A moment as an argument: in UTC where it names no zone."""
    try:
        given = datetime.fromisoformat(text)
        return read_valid_from((given if given.tzinfo else given.replace(tzinfo=UTC)).isoformat(), "")
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2026-12-01 or 2026-12-01T00:00Z") from None
    except InvalidRequest as problem:
        raise ArgumentTypeError(problem.message) from None


def _option(part: PricePart, suffix: str) -> str:
    return f"--{part.name.replace('_', '-')}-{suffix}"
