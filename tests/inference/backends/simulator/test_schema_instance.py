"""Whatever schema a client writes, the simulator's instance is valid."""

from __future__ import annotations

import contextlib
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.api.errors import ProviderRejected
from inference.backends.simulator.schema_instance import instance_of

SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "null"},
    {"const": {"a": 1}},
    {"enum": ["a", 1, None]},
    {"type": ["string", "null"], "minLength": 40},
    {"type": "string", "maxLength": 2},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 5, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    {"type": "integer", "maximum": -1000},
    {"type": "integer", "multipleOf": 7, "minimum": 50},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.25},
    {"type": "number", "minimum": 1e15, "exclusiveMaximum": 1e15 + 10},
    {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.5},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 4},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 0},
    {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 10},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False},
    {"type": "object", "required": ["x"]},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"properties": {"a": {"type": "string"}}, "additionalProperties": False},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {
        "allOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    },
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["value", "next", "children"],
            }
        },
        "$ref": "#/$defs/node",
    },
    {"$defs": {"a/b~c": {"const": 5}}, "properties": {"x": {"$ref": "#/$defs/a~1b~0c"}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: repr(schema)[:50])
def test_an_instance_is_valid(schema: dict[str, Any]) -> None:
    for seed in range(20):
        jsonschema.validate(instance_of(schema, seed), schema)


NUMBERS = st.integers(-50, 50)
SIMPLE = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
              st.integers(0, 9), st.integers(0, 9)),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
              NUMBERS, st.integers(0, 9)),
    st.builds(lambda low, more: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more},
              NUMBERS, st.sampled_from([0.001, 1, 1.5, 100])),
    st.lists(st.integers() | st.text(max_size=3) | st.none(), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
)  # fmt: skip


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
            "additionalProperties": False,
        },
        st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        st.sets(st.sampled_from("abcd")),
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2)
    )


@pytest.mark.slow
@given(
    st.recursive(
        SIMPLE,
        lambda inner: (
            objects(inner) | arrays(inner) | st.lists(inner, min_size=1).map(lambda some: {"anyOf": some})
        ),
        max_leaves=6,
    ),
    st.integers(0, 2**32),
)
def test_an_instance_of_any_such_schema_is_valid(schema: dict[str, Any], seed: int) -> None:
    jsonschema.validate(instance_of(schema, seed), schema)


ENDLESS = {
    "$defs": {"a": {"required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}}},
    "$ref": "#/$defs/a",
}
IMPOSSIBLE: list[dict[str, Any]] = [
    ENDLESS,
    {"$ref": "#"},
    {"$ref": "#/$defs/missing"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"type": "array", "minItems": 1_000_000, "items": {"type": "string"}},
    {"type": "array", "minItems": 3, "items": {"type": "boolean"}, "uniqueItems": True},
    {"type": "string", "minLength": 10**9},
    {"type": "object", "minProperties": 10**9},
    {"type": "number", "minimum": 1.7e308, "multipleOf": 1e308},
    {"type": "integer", "minimum": 10**400, "multipleOf": 0.5},
    {"type": "integer", "minimum": 1.2, "maximum": 1.8},
    {"type": "object", "required": ["a"], "additionalProperties": False},
]


@pytest.mark.parametrize("schema", IMPOSSIBLE, ids=lambda schema: repr(schema)[:50])
def test_a_schema_without_a_reasonable_instance_is_rejected(schema: dict[str, Any]) -> None:
    with pytest.raises(ProviderRejected):
        instance_of(schema, 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "items", "properties", "required", "anyOf", "$ref", "minItems", "minLength",
                 "maximum", "minimum", "multipleOf", "prefixItems", "minProperties", "format"]
            )
            | st.text(max_size=2),
            inner,
            max_size=4,
        ),
        max_leaves=10,
    )
)  # fmt: skip
def test_nonsense_is_answered_or_rejected_and_never_crashes(schema: Any) -> None:
    with contextlib.suppress(ProviderRejected):
        instance_of(schema if isinstance(schema, dict) else {"items": schema}, 1)
