"""Imports the models of a backend's own list into the catalog, for the console and the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction

from billing.prices.card import PriceCard
from billing.prices.plausibility import require_plausible
from gateway_site.api.errors import Conflict, InvalidRequest
from inference.backends.kinds import KINDS, label_of
from inference.backends.model_list import ModelListFailed, UpstreamModel
from inference.backends.registry import BackendMisconfigured, backend_for
from inference.catalog import services
from inference.models import Backend, CatalogModel
from organization.audit.trail import Actor


def import_models(
    *,
    backend: Backend,
    actor: Actor,
    prefix: str = "",
    changes: Mapping[str, Any] | None = None,
    card: PriceCard | None = None,
    valid_from: datetime | None = None,
    is_confirmed: bool = False,
) -> dict[str, list[str]]:
    """
    Import the models that the backend lists. Returns catalog ids by outcome: added, present, skipped.

    `changes` are the columns of new models, and `card` what each costs. One that is there may be another
    backend's, or have been set up by hand: it is left alone.
    """
    if backend.kind in KINDS and not KINDS[backend.kind].has_model_list:
        raise InvalidRequest(f"A {label_of(backend.kind).lower()} has no list of models.")
    if card is not None:
        require_plausible(card, None, is_confirmed=is_confirmed)
    try:
        found = async_to_sync(backend_for(backend).list_models)()
    except (BackendMisconfigured, ModelListFailed) as problem:
        raise Conflict(f"{backend.name}: {problem}") from None
    outcome: dict[str, list[str]] = {"added": [], "present": [], "skipped": []}
    # The prices are the same for all, and were looked at above.
    save = partial(services.save_model, card=card, valid_from=valid_from, is_confirmed=True, actor=actor)
    for model in found:
        state = _import(backend, model, prefix, dict(changes or {}), save, actor)
        outcome[state].append(f"{prefix}{model.id}")
    return outcome


def _import(
    backend: Backend,
    found: UpstreamModel,
    prefix: str,
    changes: dict[str, Any],
    save: Callable[..., tuple[CatalogModel, bool]],
    actor: Actor,
) -> str:
    model_id = f"{prefix}{found.id}"
    if model_id.isprintable() and CatalogModel.objects.filter(pk=model_id).exists():
        return "present"
    if found.context_length is not None:
        changes["context_length"] = found.context_length
    try:
        with transaction.atomic():
            model, _ = save(model_id=model_id, changes=changes, upstream_ids=[found.id])
            services.save_deployment(model=model, backend=backend, upstream_id=found.id, actor=actor)
    except InvalidRequest:
        return "skipped"  # an id that could not be asked for here
    return "added"
