"""
The prices that the library genai-prices knows. The one module that imports it; no server imports this.

A model's row is found by where it is deployed: the backend's address names the provider, and the model's
name there the row. Without that, an id such as `anthropic/claude-sonnet-4-5` names both. More than one row
is ambiguous, and none is unmatched: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, Provider, StartDateConstraint, TimeOfDateConstraint

from inference.catalog.price_lists.conversion import Inexpressible, card_of, notes_on
from inference.catalog.price_lists.entries import DatedCard, Match, PriceAnswer, PriceAnswers, PriceQuestion

NAME = f"genai-prices {genai_prices.__version__}"
# A row's own remarks are sentences with addresses; a table has room for the beginning.
MAX_REMARK = 300


def answer(questions: Iterable[PriceQuestion], now: datetime | None = None) -> PriceAnswers:
    """Look up the prices of these models, as they are at `now` and as they are announced."""
    moment = now or datetime.now(UTC)
    return PriceAnswers(NAME, tuple(_answer(question, moment) for question in questions))


def rows() -> Iterator[tuple[str, ModelInfo]]:
    """Every row of the list with its id, `PROVIDER/ID`."""
    for provider in get_snapshot().providers:
        for model in provider.models:
            yield f"{provider.id}/{model.id}", model


def dated_cards(model: ModelInfo, now: datetime) -> tuple[list[DatedCard | Inexpressible], list[str]]:
    """
    A row's card that is valid now, and the later ones with the day they start; and notes on them.

    A row that cannot be a card stays in the list as the reason. Raises nothing.
    """
    if isinstance(model.prices, ModelPrice):
        starts: list[datetime] = []
    else:
        constraints = [each.constraint for each in model.prices]
        if any(isinstance(constraint, TimeOfDateConstraint) for constraint in constraints):
            return [Inexpressible("The price depends on the time of day.")], []
        starts = sorted(
            datetime.combine(constraint.start_date, time(), UTC)
            for constraint in constraints
            if isinstance(constraint, StartDateConstraint) and constraint.start_date > now.date()
        )
    found: list[DatedCard | Inexpressible] = []
    for start in (None, *starts):
        card = card_of(model.get_prices(start or now))
        found.append(card if isinstance(card, Inexpressible) else DatedCard(start, card))
    return found, notes_on(model.get_prices(now))


def _answer(question: PriceQuestion, now: datetime) -> PriceAnswer:
    found = _named(question.row_id) if question.row_id else _matching(question)
    row_ids = tuple(sorted(found))
    if not found and question.row_id:
        others = ", ".join(sorted(_matching(question)))
        notes = (f"Its deployments or its id fit {others} now.",) if others else ()
        return PriceAnswer(question.model, Match.MISSING, (question.row_id,), notes=notes)
    if not found:
        return PriceAnswer(question.model, Match.UNMATCHED)
    if len(found) > 1:
        return PriceAnswer(question.model, Match.AMBIGUOUS, row_ids)
    model = found[row_ids[0]]
    (current, *later), remarks = dated_cards(model, now)
    remarks += _variant_notes(model)
    if model.price_comments:
        remarks.append(f"The list remarks: {model.price_comments[:MAX_REMARK]}")
    if isinstance(current, Inexpressible):
        return PriceAnswer(question.model, Match.FOUND, row_ids, refusal=current.reason, notes=tuple(remarks))
    # A later price is announced and not yet due; what is wrong with it must not hold up the present one.
    refused = [each.reason for each in later if isinstance(each, Inexpressible)]
    remarks += [f"A price that the list announces is refused: {reason}" for reason in refused]
    cards = (current, *(each for each in later if isinstance(each, DatedCard)))
    return PriceAnswer(question.model, Match.FOUND, row_ids, cards, notes=tuple(remarks))


def _variant_notes(model: ModelInfo) -> list[str]:
    """What a card leaves out of a row whose provider charges by the service tier."""
    tiers = {each.when.get("service_tier", "default") for each in model.price_variants or ()} - {"default"}
    if not tiers:
        return []
    return [
        f"The list has other prices for the service_tier {', '.join(sorted(tiers))}: a card has one price "
        "for all, so requests that ask for one are refused."
    ]


def _named(row_id: str) -> dict[str, ModelInfo]:
    return {each: model for each, model in rows() if each == row_id}


def _matching(question: PriceQuestion) -> dict[str, ModelInfo]:
    providers = get_snapshot().providers
    found: dict[str, ModelInfo] = {}
    for deployment in question.deployments:
        for provider in providers:
            if re.match(provider.api_pattern, deployment.base_url):
                found |= _rows_of(provider, deployment.upstream_id)
    if not found:
        provider_id, _, name = question.model.partition("/")
        for provider in providers:
            if provider.id == provider_id and name:
                found |= _rows_of(provider, name)
    return found


def _rows_of(provider: Provider, name: str) -> dict[str, ModelInfo]:
    """The rows that this name means at a provider, by their ids."""
    found = {f"{provider.id}/{model.id}": model for model in provider.models if model.is_match(name)}
    if found:
        return found
    # Its date may be written otherwise, or it may be another provider's model that is resold.
    resold = provider.find_model(name, all_providers=get_snapshot().providers)
    return {row_id: model for row_id, model in rows() if model is resold}
