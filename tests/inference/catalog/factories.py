"""Backends and models for tests, made through the doors that operators use."""

from __future__ import annotations

from typing import Any

from inference.catalog import services
from inference.models import Backend, CatalogModel, Deployment
from tests.factories import SOMEONE

PRICES = {"prompt": 1_000, "completion": 2_000}


SUFFIX = "_price_picousd"


def make_backend(name: str = "simulator", kind: str = "simulator", **options: Any) -> Backend:
    return services.save_backend(name=name, kind=kind, actor=SOMEONE, **options)[0]


def make_model(model_id: str = "simulator/echo", prices: Any = PRICES, **columns: Any) -> CatalogModel:
    """A model with a price, or none at all; PART_price_picousd sets one part of it."""
    parts = {name.removesuffix(SUFFIX): columns.pop(name) for name in list(columns) if name.endswith(SUFFIX)}
    wanted = None if prices is None else {**prices, **parts}
    return services.save_model(
        model_id=model_id, changes=columns, prices=wanted, is_confirmed=True, actor=SOMEONE
    )[0]


def deploy(model: CatalogModel, backend: Backend, upstream_id: str = "", **options: Any) -> Deployment:
    return services.save_deployment(
        model=model, backend=backend, upstream_id=upstream_id or model.pk, actor=SOMEONE, **options
    )[0]


def make_served_model(model_id: str = "simulator/echo", **columns: Any) -> CatalogModel:
    """A model that the simulator answers for."""
    model = make_model(model_id, **columns)
    deploy(model, make_backend())
    return model
