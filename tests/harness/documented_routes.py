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
    body_fields: frozenset[str]


def document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


def documented_routes() -> list[Route]:
    made = document()
    return [
        Route(
            method.upper(), path, operation.get("x-permission", ""), operation, body_fields(made, operation)
        )
        for path, operations in made["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/v1/")
    ]


def body_fields(made: dict[str, Any], operation: dict[str, Any]) -> frozenset[str]:
    """The names at the top of an operation's body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = made["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return frozenset(schema.get("properties", {}))
