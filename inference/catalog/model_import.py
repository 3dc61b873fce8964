"""Imports the models of a backend's own list into the catalog, for the console and the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction

from billing.prices.card import PriceCard
from billing.prices.versions import changed_card
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
    prices: Mapping[str, int | None] | None = None,
) -> dict[str, list[str]]:
    """
    Import the models that the backend lists. Returns catalog ids by outcome: added, present, skipped.

    `changes` are the columns of new models, and `prices` what each costs. One that is there may be another
    backend's, or have been set up by hand: it is left alone.
    """
    if backend.kind in KINDS and not KINDS[backend.kind].has_model_list:
        raise InvalidRequest(f"A {label_of(backend.kind).lower()} has no list of models.")
    card = changed_card(None, prices or {})
    try:
        found = async_to_sync(backend_for(backend).list_models)()
    except (BackendMisconfigured, ModelListFailed) as problem:
        raise Conflict(f"{backend.name}: {problem}") from None
    outcome: dict[str, list[str]] = {"added": [], "present": [], "skipped": []}
    for model in found:
        state = _import(backend, model, prefix, dict(changes or {}), card, actor)
        outcome[state].append(f"{prefix}{model.id}")
    return outcome


def _import(
    backend: Backend,
    found: UpstreamModel,
    prefix: str,
    changes: dict[str, Any],
    card: PriceCard | None,
    actor: Actor,
) -> str:
    model_id = f"{prefix}{found.id}"
    if model_id.isprintable() and CatalogModel.objects.filter(pk=model_id).exists():
        return "present"
    if found.context_length is not None:
        changes["context_length"] = found.context_length
    try:
        with transaction.atomic():
            model, _ = services.save_model(
                model_id=model_id, changes=changes, card=card, actor=actor, upstream_ids=[found.id]
            )
            services.save_deployment(model=model, backend=backend, upstream_id=found.id, actor=actor)
    except InvalidRequest:
        return "skipped"  # an id that could not be asked for here
    return "added"
