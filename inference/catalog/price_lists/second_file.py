"""
A second opinion: litellm's file `model_prices_and_context_window.json`, read and never trusted.

Its prices are USD for one token, written by programs that count in binary fractions, so some end in
`...0000002`. They are compared as the decimals that are written there, to the nearest pico-USD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

from billing.money import MAX_NANOUSD, PICO_DIGITS
from billing.prices.card import PriceCard, Rate, Tier
from gateway_site.api.errors import InvalidRequest
from inference.catalog.price_lists.differences import PriceDifference, differences

# Fifteen times what the file has today.
MAX_BYTES = 50_000_000
PARTS_BY_KEY = {
    "input_cost_per_token": "prompt",
    "output_cost_per_token": "completion",
    "cache_read_input_token_cost": "cached",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "input_cost_per_audio_token": "audio_input",
    "output_cost_per_audio_token": "audio_output",
    "output_cost_per_reasoning_token": "reasoning",
}
TIER = re.compile(r"(.+)_above_(\d{1,6})k_tokens")
# The names that the file has for providers, where they are not the list's own.
PROVIDER_NAMES = {
    "aws": ("bedrock", "bedrock_converse"),
    "azure": ("azure", "azure_ai"),
    "cohere": ("cohere", "cohere_chat"),
    "fireworks": ("fireworks_ai",),
    "github-copilot": ("github_copilot",),
    "google": ("gemini", "vertex_ai-language-models"),
    "moonshotai": ("moonshot",),
    "together": ("together_ai",),
    "voyageai": ("voyage",),
    "x-ai": ("xai",),
}


class SecondFile:
    """The file's rows, to be asked for those of the price list."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    @classmethod
    def read(cls, path: Path) -> SecondFile:
        """Read the file, or say in words for an operator why it cannot be."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise InvalidRequest(f"{path.name} has more than {MAX_BYTES:,} bytes.", param="second")
            rows = json.loads(path.read_bytes(), parse_float=Decimal)
        except OSError as problem:
            raise InvalidRequest(f"{path.name}: {problem.strerror}.", param="second") from None
        except (ValueError, RecursionError):
            raise InvalidRequest(f"{path.name} is not JSON.", param="second") from None
        if not isinstance(rows, dict) or not any(map(_is_priced, rows.values())):
            raise InvalidRequest(
                f"{path.name} has no rows with input_cost_per_token: it is not the file that is meant.",
                param="second",
            )
        return cls(rows)

    def disagreements(self, row_id: str, card: PriceCard) -> list[PriceDifference] | None:
        """
        The prices that the file has otherwise, from the card's to the file's; None without a row of its own.

        Compared are the parts that the file prices. What it says nothing of is no disagreement.
        """
        found = self._row(row_id)
        rates = {} if found is None else _rates(found, card.thresholds)
        try:
            return differences(card, PriceCard(rates), parts=rates)
        except ValueError:  # no such row, or not one that is a card
            return None

    def _row(self, row_id: str) -> dict[str, Any] | None:
        provider, _, name = row_id.partition("/")
        names = PROVIDER_NAMES.get(provider, (provider,))
        for key in (*(f"{each}/{name}" for each in names), name):
            row = self._rows.get(key)
            if _is_priced(row) and row.get("litellm_provider") in names:
                return row
        return None


def _is_priced(row: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(row, dict) and "input_cost_per_token" in row


def _rates(row: Mapping[str, Any], thresholds: list[int]) -> dict[str, Rate]:
    prices: dict[str, int] = {}
    tiers: dict[str, list[Tier]] = {}
    for key, value in row.items():
        picousd = _picousd(value)
        if picousd is None:
            continue
        if key in PARTS_BY_KEY:
            prices[PARTS_BY_KEY[key]] = picousd
        elif (match := TIER.fullmatch(key)) and match[1] in PARTS_BY_KEY:
            over = int(match[2]) * 1_000
            # Its keys name thousands: "from 200,000 on" and "over 200,000" are the same to it.
            over = next((known for known in thresholds if abs(known - over) <= 1), over)
            tiers.setdefault(PARTS_BY_KEY[match[1]], []).append(Tier(over, picousd))
    return {
        part: Rate(picousd, tuple(sorted(tiers.get(part, ()), key=lambda tier: tier.over)))
        for part, picousd in prices.items()
    }


def _picousd(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value).scaleb(PICO_DIGITS)
    return int(exact.to_integral_value()) if 0 <= exact <= MAX_NANOUSD else None
