"""
What is asked of a price list, and what it answers: plain values that can pass between processes.

The library that reads the list stays out of the server's process. The console asks a process of its own
(`inference.catalog.price_lists.reader_process`), the command asks in its own.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct

from billing.prices.card import PriceCard


class DeployedName(Struct, frozen=True):
    """Where a model is deployed: the address of a backend, and the model's name there."""

    base_url: str
    upstream_id: str


class PriceQuestion(Struct, frozen=True):
    """A model of the catalog whose prices are looked up."""

    model: str
    deployments: tuple[DeployedName, ...] = ()
    # `PROVIDER/ID` that somebody named, or that the model's prices came from before. Empty: it is searched.
    row_id: str = ""


class Match(Enum):
    """How the list's row for a model was found, or why none was."""

    FOUND = "found"
    UNMATCHED = "unmatched"
    AMBIGUOUS = "ambiguous"
    # A row was named, and the list has none of that name (any more).
    MISSING = "missing"


class DatedCard(Struct, frozen=True):
    """A card and the moment from which it is valid; None is now."""

    valid_from: datetime | None
    card: PriceCard


class PriceAnswer(Struct, frozen=True):
    """What the list says of one model."""

    model: str
    match: Match
    # The ids of the rows that were found, as `PROVIDER/ID`: one, unless it is ambiguous.
    row_ids: tuple[str, ...] = ()
    # What is valid now, then what the list announces, in order. Empty where it is refused.
    cards: tuple[DatedCard, ...] = ()
    refusal: str = ""
    notes: tuple[str, ...] = ()


class PriceAnswers(Struct, frozen=True):
    """What a list says of all models that were asked for, and which list it was."""

    # Such as `genai-prices 0.2.1`.
    list_name: str
    answers: tuple[PriceAnswer, ...]
