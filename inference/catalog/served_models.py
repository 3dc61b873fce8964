"""
The models that can be asked for, as a request needs them: price, limits, and where they are deployed.

Each process keeps what it read. An entry is read again when it is asked for and older than a second, so a
change made anywhere, by whatever means, is seen by every process within MAX_AGE_SECONDS. While one request
reads, the others that need the same entry wait for that reading.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from functools import partial

from django.db.models import Prefetch, QuerySet

from billing.prices.card import CardVersion
from gateway_site.api.errors import ModelNotConfigured, ModelNotFound, PermissionDenied
from gateway_site.database.off_loop import off_loop
from gateway_site.database.single_flight_cache import SingleFlightCache
from inference.backends import registry
from inference.backends.base import InferenceBackend
from inference.backends.registry import BackendMisconfigured
from inference.models import CatalogModel, Deployment, PassedCheck
from organization.models import ProjectKey

logger = logging.getLogger(__name__)

MAX_AGE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment, ready to be called."""

    deployment_id: int
    name: str  # for activity records
    backend: InferenceBackend
    model: str  # the model's id on that backend


@dataclass(frozen=True, slots=True)
class ServedModel:
    id: str
    # What a request is admitted under.
    version: CardVersion
    context_length: int
    max_output_length: int
    tokenizer: str
    is_tokenizer_exact: bool
    input_modalities: tuple[str, ...]
    targets: tuple[Target, ...]  # the enabled ones; never empty
    weights: tuple[int, ...]  # of the targets, in their order


@dataclass(frozen=True, slots=True)
class Entry:
    """A model as it was read. `served` is None where a price or a deployment is missing."""

    required_checks: frozenset[str]
    served: ServedModel | None


async def served_model(model_id: str, key: ProjectKey) -> ServedModel:
    """
    The model, if this key's organization may use it and it can be served.

    Else ModelNotFound, PermissionDenied, or ModelNotConfigured: a price that is not set is never zero.
    """
    entry = await _entries.get(model_id, partial(_load_entry, model_id))
    if entry is None:
        raise ModelNotFound()
    if entry.required_checks:
        organization_id = key.project.organization_id
        passed = await _passed_checks.get(organization_id, partial(_load_passed_checks, organization_id))
        if missing := entry.required_checks - passed:
            raise PermissionDenied(f"This model is locked; not passed: {', '.join(sorted(missing))}.")
    if entry.served is None:
        raise ModelNotConfigured()
    return entry.served


def forget() -> None:
    """Drop this process's cache of models. Other processes follow within MAX_AGE_SECONDS."""
    _entries.clear()
    _passed_checks.clear()


def enabled_models() -> QuerySet[CatalogModel]:
    """Models that customers may see, each with its `live_deployments`."""
    live = Deployment.objects.filter(is_enabled=True, backend__is_enabled=True)
    return CatalogModel.objects.filter(is_enabled=True).prefetch_related(
        Prefetch("deployments", live.select_related("backend").order_by("pk"), to_attr="live_deployments")
    )


def find_enabled(model_id: str) -> CatalogModel | None:
    # PostgreSQL refuses NUL and lone surrogates with an error where SQLite finds nothing.
    return enabled_models().filter(pk=model_id).first() if model_id.isprintable() else None


def checks_passed_by(organization_id: uuid.UUID) -> frozenset[str]:
    passed = PassedCheck.objects.filter(organization_id=organization_id)
    return frozenset(passed.values_list("check_name", flat=True))


def _read_entry(model_id: str) -> Entry | None:
    model = find_enabled(model_id)
    if model is None:
        return None
    return Entry(required_checks=frozenset(model.required_checks), served=_served(model))


def _served(model: CatalogModel) -> ServedModel | None:
    if model.price_version is None:
        logger.error("model %s is asked for and has no price", model.pk)
        return None
    weighted = []
    for deployment in model.live_deployments:  # type: ignore[attr-defined]
        try:
            weighted.append((_target(deployment), deployment.weight))
        except BackendMisconfigured as problem:
            logger.error("backend %s cannot be used: %s", deployment.backend.name, problem)
    if not weighted:
        logger.error("model %s is asked for and has no deployment that can be used", model.pk)
        return None
    return ServedModel(
        id=model.pk,
        version=model.price_version.versioned_card,
        context_length=model.context_length,
        max_output_length=model.max_output_length,
        tokenizer=model.tokenizer,
        is_tokenizer_exact=model.is_tokenizer_exact,
        input_modalities=tuple(model.input_modalities),
        targets=tuple(target for target, _ in weighted),
        weights=tuple(weight for _, weight in weighted),
    )


def _target(deployment: Deployment) -> Target:
    backend = deployment.backend
    return Target(
        deployment_id=deployment.pk,
        name=f"{backend.name}/{deployment.upstream_id}",
        backend=registry.backend_for(backend),
        model=deployment.upstream_id,
    )


_load_entry = off_loop(_read_entry)
_load_passed_checks = off_loop(checks_passed_by)
_entries: SingleFlightCache[str, Entry | None] = SingleFlightCache(MAX_AGE_SECONDS)
_passed_checks: SingleFlightCache[uuid.UUID, frozenset[str]] = SingleFlightCache(MAX_AGE_SECONDS)
