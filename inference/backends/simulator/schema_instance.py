"""
An instance of a JSON schema, the same one for the same seed.

Covers what people write for tools and structured outputs: types, const, enum, $ref and $defs, anyOf, oneOf,
allOf, bounds, formats, required and optional properties. `pattern`, `not` and `if` are not looked at.
"""

from __future__ import annotations

import math
import random
from typing import Any

from gateway_site.api.errors import ProviderRejected
from inference.prompt import Json

# Beyond this, only what is required is filled in, so that a schema that mentions itself comes to an end …
MAX_OPTIONAL_DEPTH = 4
# … unless it requires itself.
MAX_DEPTH = 32
# The same bound for breadth: a schema may ask for a million items, or one of a million characters.
MAX_NODES = 1_000

FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}


def instance_of(schema: Json, seed: int) -> Any:
    """A value that is valid against `schema`, or ProviderRejected where none was found."""
    return _Maker(schema, random.Random(seed)).make(schema, 0)


class _Maker:
    def __init__(self, root: Json, generator: random.Random) -> None:
        self._root = root
        self._random = generator
        self._nodes = 0

    def make(self, schema: Any, depth: int) -> Any:
        self._spend(1 if depth <= MAX_DEPTH else MAX_NODES)
        if not isinstance(schema, dict):
            if schema is False:
                raise ProviderRejected("The JSON schema has no instance.")
            return None
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if options := _list(schema.get("enum")):
            return self._random.choice(options)
        return self._typed(schema, depth)

    def _spend(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise ProviderRejected("The JSON schema asks for too large an instance.")

    def _typed(self, schema: Json, depth: int) -> Any:
        match self._type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._random.random() < 0.5
            case _:
                return None

    def _resolved(self, schema: Json, depth: int) -> Json:
        """`schema` with its references followed, one of its alternatives chosen, and its parts merged."""
        for _ in range(MAX_DEPTH):
            branches = [
                schema.get("$ref"),
                *(_list(schema.get(word)) for word in ("anyOf", "oneOf", "allOf")),
            ]
            if not any(branches):
                return schema
            own = {name: schema[name] for name in schema if name not in ("$ref", "anyOf", "oneOf", "allOf")}
            reference, any_of, one_of, all_of = branches
            parts = [*all_of] if isinstance(all_of, list) else []
            if isinstance(reference, str):
                parts.append(self._target(reference))
            for choices in (any_of, one_of):
                if isinstance(choices, list) and choices:
                    # Deep down, the alternative that says least: usually the null of an optional field.
                    parts.append(min(choices, key=_size) if depth >= MAX_OPTIONAL_DEPTH else choices[0])
            schema = _merged([own, *(part for part in parts if isinstance(part, dict))])
        raise ProviderRejected("The JSON schema refers to itself without end.")

    def _target(self, reference: str) -> Any:
        node: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                raise ProviderRejected(f"The JSON schema has nothing at {reference[:100]}.")
            node = node[name]
        return node

    def _type(self, schema: Json) -> str | None:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kind = kind[0]
        if isinstance(kind, str):
            return kind
        if "properties" in schema or "required" in schema:
            return "object"
        return "array" if "items" in schema or "prefixItems" in schema else "string"

    def _object(self, schema: Json, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        named = list(properties) if depth < MAX_OPTIONAL_DEPTH else []
        other = schema.get("additionalProperties", True)
        made = {
            name: self.make(properties.get(name, other), depth + 1)
            for name in dict.fromkeys(named + required)
        }
        while len(made) < _whole(schema.get("minProperties"), 0):
            made[f"property{len(made)}"] = self.make(other, depth + 1)
        return made

    def _array(self, schema: Json, depth: int) -> list[Any]:
        first = _list(schema.get("prefixItems"))
        least = _whole(schema.get("minItems"), 0)
        most = _whole(schema.get("maxItems"), MAX_NODES)
        wanted = max(least, len(first), 1 if depth < MAX_OPTIONAL_DEPTH else 0)
        made: list[Any] = []
        for index in range(min(wanted, most)):
            item = first[index] if index < len(first) else schema.get("items", {})
            made.append(self._another(item, made, depth, unique=schema.get("uniqueItems") is True))
        return made

    def _another(self, schema: Any, made: list[Any], depth: int, *, unique: bool) -> Any:
        for _ in range(100):
            item = self.make(schema, depth + 1)
            if not unique or item not in made:
                return item
        raise ProviderRejected("The JSON schema asks for more different items than were found.")

    def _string(self, schema: Json) -> str:
        kind = schema.get("format")
        if isinstance(kind, str) and kind in FORMATS:
            return FORMATS[kind]
        least = _whole(schema.get("minLength"), 0)
        self._spend(least // 100)
        text = "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=max(least, 6)))
        return text[: _whole(schema.get("maxLength"), len(text))]

    def _number(self, schema: Json, *, whole: bool) -> int | float:
        step = _number(schema.get("multipleOf"))
        unit = step if step is not None and step > 0 else 1
        try:
            lowest, highest = _range(schema, unit)
            first, last = math.ceil(lowest / unit), math.floor(highest / unit)
        except OverflowError:
            raise ProviderRejected("The JSON schema has a bound that is too large.") from None
        if first <= last:
            made = self._random.randint(first, last) * unit
            return int(made) if whole or made == int(made) else made
        if whole:
            raise ProviderRejected("The JSON schema has a range with no integer in it.")
        return (lowest + highest) / 2


def _range(schema: Json, unit: float) -> tuple[float, float]:
    """The closed range that the bounds leave, a hundred steps wide where one side is open."""
    low = _bound(schema, "minimum", "exclusiveMinimum", math.inf)
    high = _bound(schema, "maximum", "exclusiveMaximum", -math.inf)
    if low is None:
        low = 0.0 if high is None or high >= 0 else high - 100 * unit
    return low, low + 100 * unit if high is None else high


def _bound(schema: Json, name: str, exclusive: str, inwards: float) -> float | None:
    bounds = [bound for bound in [_number(schema.get(name))] if bound is not None]
    outside = _number(schema.get(exclusive))
    if outside is not None:
        bounds.append(math.nextafter(outside, inwards))
    if not bounds:
        return None
    return max(bounds) if inwards > 0 else min(bounds)


def _merged(parts: list[Json]) -> Json:
    made: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if (
                name in ("properties", "$defs")
                and isinstance(made.get(name), dict)
                and isinstance(value, dict)
            ):
                made[name] = {**made[name], **value}
            elif name == "required":
                made[name] = [*_list(made.get(name)), *_list(value)]
            else:
                made[name] = value
    return made


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int and value >= 0 else default


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _size(schema: Any) -> int:
    if not isinstance(schema, dict) or schema.get("type") == "null":
        return 0
    return len(schema) + (100 if "$ref" in schema or "properties" in schema else 0)
