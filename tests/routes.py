"""The routes under /v1 as the OpenAPI document tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drf_spectacular.generators import SchemaGenerator


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    permission: str
    operation: dict[str, Any]


def document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


def documented_routes() -> list[Route]:
    return [
        Route(method.upper(), path, operation.get("x-permission", ""), operation)
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/v1/")
    ]
