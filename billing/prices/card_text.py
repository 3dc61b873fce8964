"""
Price cards as people write and read them: USD per million tokens, and per one of anything else.

    {"prompt": {"price": "3", "tiers": [{"over": 200000, "price": "6"}]}, "completion": "15", "cached": "0.3",
     "image": "0.002", "image_tokens": 1700}

A card is whole: what is not in it is not priced. Prices are strings, because a JSON number with a fraction
is read as the nearest binary one. Whatever is wrong is named by its path, such as `prompt.tiers[0].price`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from billing.money import parse_per_million, parse_price, per_million, price_text
from billing.prices.card import MAX_TIERS, PriceCard, Rate, Tier
from billing.prices.parts import PARTS, PricePart, part_named
from billing.prices.price import MAX_QUANTITY
from gateway_site.api.errors import InvalidRequest

# What a card says beside its prices: how many tokens, or searches, a hold assumes.
COUNTS: tuple[str, ...] = tuple(field.name for field in structs.fields(PriceCard) if field.name != "rates")
MAX_COUNT = MAX_QUANTITY // 1_000
# What an error repeats of what somebody typed.
MAX_REPEATED = 60
EARLIEST_YEAR, LATEST_YEAR = 2000, 2100
TIER_LINE = re.compile(r"over\s+(\d{1,13})\s*:\s*(.+)", re.IGNORECASE)


# --- one price ----------------------------------------------------------------------------------------


def parse_part_price(part: PricePart, text: str) -> int:
    """A price as it is typed, per million tokens or per one of anything else, as pico-USD."""
    return parse_per_million(text) if part.is_per_token else parse_price(text)


def part_price(part: PricePart, picousd: int) -> str:
    """A price as `parse_part_price` reads it."""
    return per_million(picousd) if part.is_per_token else price_text(picousd)


def unit_of(part: PricePart) -> str:
    """What the typed and shown price of a part is for: `per million tokens`, `per image`."""
    return "per million tokens" if part.is_per_token else f"per {part.unit}"


def price_with_unit(part: PricePart, picousd: int) -> str:
    return f"${part_price(part, picousd)} {unit_of(part)}"


# --- a card as JSON -----------------------------------------------------------------------------------


def read_card(written: Any, path: str = "") -> PriceCard:
    """The card that the JSON values say. `path` is where they stand in what was read, for errors."""
    fields = _object(written, path)
    known = {part.name for part in PARTS} | set(COUNTS)
    for name in fields:
        if name not in known:
            raise _refusal(_below(path, name), f"A card has no such key; it has {', '.join(sorted(known))}.")
    rates = {
        part.name: _read_rate(part, fields[part.name], _below(path, part.name))
        for part in PARTS
        if part.name in fields
    }
    counts = {
        name: _whole_number(fields[name], MAX_COUNT, _below(path, name)) for name in COUNTS if name in fields
    }
    return card_of(rates, counts, path)


def write_card(card: PriceCard) -> dict[str, Any]:
    """The card as JSON values, which `read_card` reads back."""
    prices = {name: _written_rate(part_named(name), card.rates[name]) for name in _names(card)}
    return {**prices, **{name: getattr(card, name) for name in COUNTS}}


def card_of(rates: Mapping[str, Rate], counts: Mapping[str, int], path: str = "") -> PriceCard:
    """A card of these rates and counts, or the reason why there is none, as an error of the API."""
    try:
        return PriceCard(dict(rates), **counts)
    except ValueError as problem:
        raise _refusal(path, str(problem)) from None


def _read_rate(part: PricePart, written: Any, path: str) -> Rate:
    if not isinstance(written, dict):
        return Rate(_read_price(part, written, path))
    _require_keys(written, {"price"}, {"tiers"}, path)
    base = _read_price(part, written["price"], _below(path, "price"))
    tiers = written.get("tiers", [])
    path = _below(path, "tiers")
    if not isinstance(tiers, list) or len(tiers) > MAX_TIERS:
        raise _refusal(path, f"Must be a list of at most {MAX_TIERS} tiers.")
    found: list[Tier] = []
    for position, each in enumerate(tiers):
        found.append(_read_tier(part, each, found, f"{path}[{position}]"))
    return Rate(base, tuple(found))


def _read_tier(part: PricePart, written: Any, before: list[Tier], path: str) -> Tier:
    fields = _object(written, path)
    _require_keys(fields, {"over", "price"}, set(), path)
    over = _whole_number(fields["over"], MAX_QUANTITY, _below(path, "over"))
    if before and over <= before[-1].over:
        raise _refusal(_below(path, "over"), f"Must be more than {before[-1].over}, that of the tier before.")
    return Tier(over, _read_price(part, fields["price"], _below(path, "price")))


def _read_price(part: PricePart, written: Any, path: str) -> int:
    if isinstance(written, float):
        raise _refusal(
            path, f'A JSON number with a fraction is not exact: write it as a string, "{written}".'
        )
    if isinstance(written, bool) or not isinstance(written, str | int):
        raise _refusal(path, f"Must be a decimal string: USD {unit_of(part)}.")
    try:
        return parse_part_price(part, str(written))
    except ValueError as problem:
        raise _refusal(path, str(problem)) from None


def _written_rate(part: PricePart, rate: Rate) -> Any:
    if not rate.tiers:
        return part_price(part, rate.picousd)
    tiers = [{"over": tier.over, "price": part_price(part, tier.picousd)} for tier in rate.tiers]
    return {"price": part_price(part, rate.picousd), "tiers": tiers}


def read_valid_from(written: Any, path: str) -> datetime:
    """The moment that an ISO time such as `2026-12-01T00:00:00Z` names. It must say its time zone."""
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _refusal(path, "Must be a time with its zone, such as 2026-12-01T00:00:00Z.")
    if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        raise _refusal(path, f"Must be in a year from {EARLIEST_YEAR} to {LATEST_YEAR}.")
    return moment.astimezone(UTC)


# --- tiers as lines -----------------------------------------------------------------------------------


def read_tiers(text: str) -> dict[str, tuple[Tier, ...]]:
    """The tiers of each part, of lines such as `over 200000: prompt 6, completion 22.5`."""
    found: dict[str, list[Tier]] = {}
    last_over = -1
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        match = TIER_LINE.fullmatch(line.strip())
        if match is None:
            raise _refusal(
                where, "Must be such as `over 200000: prompt 6, completion 22.5`: tokens, then prices."
            )
        over = int(match[1])
        if over <= last_over:
            raise _refusal(where, f"Must be over more than {last_over} tokens, as the line before is.")
        last_over = over
        for name, picousd in _prices_on_line(match[2], where).items():
            found.setdefault(name, []).append(Tier(over, picousd))
    return {name: tuple(tiers) for name, tiers in found.items()}


def write_tiers(card: PriceCard) -> str:
    """The card's tiers as lines that `read_tiers` reads back."""
    lines = []
    for over in card.thresholds:
        prices = [
            f"{name} {part_price(part_named(name), tier.picousd)}"
            for name in _names(card)
            for tier in card.rates[name].tiers
            if tier.over == over
        ]
        lines.append(f"over {over}: {', '.join(prices)}")
    return "\n".join(lines)


def _prices_on_line(text: str, where: str) -> dict[str, int]:
    prices: dict[str, int] = {}
    for pair in text.split(","):
        name, _, typed = pair.strip().partition(" ")
        if name not in {part.name for part in PARTS}:
            raise _refusal(where, f"There is no part {_repeated(name)}.")
        if name in prices:
            raise _refusal(where, f"The price of {name} is there twice.")
        try:
            prices[name] = parse_part_price(part_named(name), typed)
        except ValueError as problem:
            raise _refusal(where, f"{name}: {problem}") from None
    return prices


# --- a card in words ----------------------------------------------------------------------------------


def card_rows(card: PriceCard) -> list[tuple[str, str]]:
    """Each part that the card prices, and its price with the unit and its tiers."""
    priced = [part_named(name) for name in _names(card)]
    return [(part.item, _rate_in_words(part, card.rates[part.name])) for part in priced]


def card_summary(card: PriceCard) -> str:
    """The card on one line: the prices of a million tokens first, then those of one of each other part."""
    return "; ".join(f"{label} {words}" for label, words in card_rows(card))


def card_changes(before: PriceCard | None, after: PriceCard) -> list[str]:
    """What is other in the second card, one line for each part and count: `prompt: $3 … → $6 …`."""
    if before is None:
        return [f"{label}: {words}" for label, words in card_rows(after)]
    old, new = dict(card_rows(before)), dict(card_rows(after))
    for name in COUNTS:
        old[name], new[name] = str(getattr(before, name)), str(getattr(after, name))
    return [
        f"{label}: {old.get(label, 'not set')} → {new.get(label, 'not set')}"
        for label in {**new, **old}
        if old.get(label) != new.get(label)
    ]


def _rate_in_words(part: PricePart, rate: Rate) -> str:
    tiers = "".join(f", over {tier.over:,}: ${part_price(part, tier.picousd)}" for tier in rate.tiers)
    return f"{price_with_unit(part, rate.picousd)}{tiers}"


# --- refusals -----------------------------------------------------------------------------------------


def _names(card: PriceCard) -> list[str]:
    return [part.name for part in PARTS if part.name in card.rates]


def _object(written: Any, path: str) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise _refusal(path, "Must be an object.")
    return written


def _require_keys(fields: Mapping[str, Any], required: set[str], optional: set[str], path: str) -> None:
    for name in sorted(required - set(fields)):
        raise _refusal(_below(path, name), "Is missing.")
    for name in fields:
        if name not in required | optional:
            known = ", ".join(sorted(required | optional))
            raise _refusal(_below(path, name), f"There is no such key; there are {known}.")


def _whole_number(written: Any, most: int, path: str) -> int:
    if type(written) is not int or not 0 <= written <= most:
        raise _refusal(path, f"Must be a whole number from 0 to {most}.")
    return written


def _below(path: str, name: str) -> str:
    shown = name[:MAX_REPEATED]
    return f"{path}.{shown}" if path else shown


def _repeated(text: str) -> str:
    return repr(text[:MAX_REPEATED])


def _refusal(path: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {problem}" if path else problem, param=path or None)
