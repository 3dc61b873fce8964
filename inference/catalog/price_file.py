"""
The prices of many models as one JSON file, read whole or not at all, and the file of those in force.

    {"models": {"acme/large": {"valid_from": "2026-12-01T00:00:00Z", "prices": {"prompt": "3", ...}}}}

`prices` is a card as `billing.prices.card_text` reads it, and `valid_from` may be left out: from now on.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from msgspec import Struct

from billing.models import PriceVersion
from billing.prices import plausibility, versions
from billing.prices.card import PriceCard
from billing.prices.card_text import card_changes, read_card, read_valid_from, write_card
from billing.prices.plausibility import ImplausiblePrice
from gateway_site.api.bodies import strict_json
from gateway_site.api.errors import InvalidRequest
from inference.catalog import served_models
from inference.models import CatalogModel
from organization.audit.trail import Actor

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_MODELS = 5_000
# How many unknown models, or implausible prices, an error names.
MAX_NAMED = 20
NEW, CHANGED, SAME = "new", "changed", "same"


class PriceFileEntry(Struct, frozen=True):
    """What a file says about one model; `valid_from` is None for now."""

    model: str
    card: PriceCard
    valid_from: datetime | None = None


class ImportedPrice(Struct, frozen=True):
    """What an import does to one model's prices: new, changed or same, and what is hardly meant."""

    model: str
    state: str
    valid_from: datetime | None
    changes: list[str]
    problems: list[str]
    # None where nothing was stored: the same, or only a trial.
    version: PriceVersion | None = None


def read_price_file(text: bytes) -> list[PriceFileEntry]:
    """Every entry of a file, or an error that names what is wrong by its path."""
    if len(text) > MAX_FILE_BYTES:
        raise InvalidRequest(f"A price file has at most {MAX_FILE_BYTES} bytes.")
    document = strict_json.loads(text)
    if not isinstance(document, dict) or set(document) != {"models"}:
        raise InvalidRequest('A price file is an object with one key: {"models": {...}}.')
    models = document["models"]
    if not isinstance(models, dict) or not 1 <= len(models) <= MAX_MODELS:
        raise InvalidRequest(f"models: Must be an object with 1 to {MAX_MODELS} models.", param="models")
    return [_read_entry(name, entry) for name, entry in models.items()]


def import_prices(
    entries: list[PriceFileEntry],
    *,
    source: str,
    actor: Actor,
    is_confirmed: bool = False,
    is_dry_run: bool = False,
) -> list[ImportedPrice]:
    """
    Make each entry a version of its model's prices, all of them or none.

    Models that are not in the catalog are refused by name, and so are prices that are hardly meant unless
    they are confirmed. A dry run refuses the former and reports the latter.
    """
    with transaction.atomic():
        _lock_models([entry.model for entry in entries])
        planned = [_plan(entry) for entry in entries]
        if is_dry_run:
            return planned
        doubts = [f"{each.model}: {problem}" for each in planned for problem in each.problems]
        if doubts and not is_confirmed:
            raise ImplausiblePrice(_first(doubts))
        done = [
            _stored(entry, plan, source, actor, is_confirmed)
            for entry, plan in zip(entries, planned, strict=True)
        ]
        transaction.on_commit(served_models.forget)
    return done


def export_prices() -> dict[str, Any]:
    """The cards in force of the catalog's models, in the form that `import_prices` reads."""
    names = CatalogModel.objects.order_by("pk").values_list("pk", flat=True)
    found = versions.in_force(names)
    return {"models": {name: {"prices": write_card(found[name].card)} for name in names if name in found}}


def _read_entry(model: str, entry: Any) -> PriceFileEntry:
    path = f"models.{model[: strict_json.MAX_NAME_LENGTH]}"
    if not isinstance(entry, dict) or "prices" not in entry or not set(entry) <= {"prices", "valid_from"}:
        raise InvalidRequest(f"{path}: Must be an object of prices and, if need be, valid_from.", param=path)
    moment = None
    if "valid_from" in entry:
        moment = read_valid_from(entry["valid_from"], f"{path}.valid_from")
    return PriceFileEntry(model, read_card(entry["prices"], f"{path}.prices"), moment)


def _lock_models(models: list[str]) -> None:
    """Keep others from pricing these models meanwhile, and refuse those that are not there."""
    rows = CatalogModel.objects.select_for_update().filter(pk__in=models).order_by("pk")
    known = set(rows.values_list("pk", flat=True))
    if unknown := [model for model in models if model not in known]:
        raise InvalidRequest(
            f"The catalog has no such models: {', '.join(_first(unknown))}. Nothing was changed."
        )


def _plan(entry: PriceFileEntry) -> ImportedPrice:
    before = versions.in_force_for(entry.model, entry.valid_from)
    card = before.card if before is not None else None
    if card == entry.card:
        return ImportedPrice(entry.model, SAME, entry.valid_from, [], [])
    return ImportedPrice(
        entry.model,
        NEW if card is None else CHANGED,
        entry.valid_from,
        card_changes(card, entry.card),
        plausibility.problems(entry.card, card),
    )


def _stored(
    entry: PriceFileEntry, plan: ImportedPrice, source: str, actor: Actor, is_confirmed: bool
) -> ImportedPrice:
    if plan.state == SAME:
        return plan
    version, _ = versions.add_version(
        model=entry.model,
        card=entry.card,
        source=source,
        actor=actor,
        valid_from=entry.valid_from,
        is_confirmed=is_confirmed,
    )
    return ImportedPrice(
        plan.model, plan.state, version.valid_from, plan.changes, plan.problems, version=version
    )


def _first(names: list[str]) -> list[str]:
    left = len(names) - MAX_NAMED
    return names[:MAX_NAMED] + ([f"and {left} more"] if left > 0 else [])
