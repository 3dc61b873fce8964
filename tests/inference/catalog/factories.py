"""Backends and models for tests, made through the doors that operators use."""

from __future__ import annotations

from typing import Any

from inference.catalog import services
from inference.models import Backend, CatalogModel, Deployment
from tests.factories import SOMEONE

PRICES = {"prompt_price_picousd": 1_000, "completion_price_picousd": 2_000}


def make_backend(name: str = "simulator", kind: str = "simulator", **options: Any) -> Backend:
    return services.save_backend(name=name, kind=kind, actor=SOMEONE, **options)[0]


def make_model(model_id: str = "simulator/echo", **columns: Any) -> CatalogModel:
    """A model with a price; `prompt_price_picousd=None` for one without."""
    return services.save_model(model_id=model_id, changes={**PRICES, **columns}, actor=SOMEONE)[0]


def deploy(model: CatalogModel, backend: Backend, upstream_id: str = "", **options: Any) -> Deployment:
    return services.save_deployment(
        model=model, backend=backend, upstream_id=upstream_id or model.pk, actor=SOMEONE, **options
    )[0]


def make_served_model(model_id: str = "simulator/echo", **columns: Any) -> CatalogModel:
    """A model that the simulator answers for."""
    model = make_model(model_id, **columns)
    deploy(model, make_backend())
    return model
