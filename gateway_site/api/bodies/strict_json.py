"""
JSON as the standard means it, and a little less.

Python's decoder takes NaN, duplicate keys, lone surrogates and UTF-16, and answers deep nesting with a
RecursionError. Each of those is either a crash further down, or a body that two readers understand
differently: what a policy judged must be what the backend was sent.
"""

from __future__ import annotations

import json
import math
import re
from email.message import Message
from typing import Any

from rest_framework.parsers import BaseParser

from gateway_site.api.bodies.node_count import require_bounded_nodes
from gateway_site.api.errors import InvalidRequest, UnsupportedMediaType

MAX_DEPTH = 64
# No field holds a larger number, and Python refuses to read very long ones in its own words.
MAX_INTEGER_DIGITS = 30
# What an error repeats of a name that the client chose, which can be megabytes.
MAX_NAME_LENGTH = 300
# Only an escape can bring these in: as bytes, both are refused before this is asked.
FORBIDDEN_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def require_json_content_type(content_type: str, content_encoding: str) -> None:
    """Refuse a body that does not say it is plain UTF-8 JSON."""
    message = Message()
    message["Content-Type"] = content_type
    charset = message.get_param("charset") or "utf-8"
    if (
        message.get_content_type() != "application/json"
        or content_type.split(";")[0].strip().lower() != "application/json"
        or not isinstance(charset, str)
        or charset.lower() not in ("utf-8", "utf8")
        or content_encoding.strip().lower() not in ("", "identity")
    ):
        raise UnsupportedMediaType()


def loads(body: bytes) -> Any:
    """Parse a JSON body, or raise InvalidRequest."""
    require_bounded_nodes(body)
    return loads_bounded(body)


def loads_bounded(body: bytes) -> Any:
    """Parse a JSON body whose values were counted already, or raise InvalidRequest."""
    text = _decoded(body)
    try:
        value = _decoder.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error.msg} at character {error.pos}.") from None
    # A body with few brackets cannot be deep, and most have few; the walk is for the rest.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if FORBIDDEN_ESCAPE.search(text):
        _refuse_bad_text(value)
    return value


class StrictJSONParser(BaseParser):
    """Parses the bodies of REST views, which must say that they are JSON, by `loads`."""

    # AlwaysJSON sends every body here, so that the refusal of another type is ours too.
    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        request = parser_context["request"]
        require_json_content_type(
            request.headers.get("Content-Type", ""), request.headers.get("Content-Encoding", "")
        )
        value = loads(stream.read())
        if not isinstance(value, dict):
            raise InvalidRequest("The body must be a JSON object.")
        return value


def _decoded(body: bytes) -> str:
    if not body.strip(b" \t\r\n"):
        raise InvalidRequest("The body is empty; a JSON object is expected.")
    if body.startswith(b"\xef\xbb\xbf"):
        raise InvalidRequest("The body starts with a byte order mark.")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8 at byte {error.start}.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        repeated = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequest(
            "A name occurs twice in one object.", param=printable(repeated[:MAX_NAME_LENGTH])
        )
    return made


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise InvalidRequest("A number is too large.")
    return number


def _bounded(literal: str) -> int:
    if len(literal) > MAX_INTEGER_DIGITS:
        raise InvalidRequest("A number has too many digits.")
    return int(literal)


def _not_a_number(literal: str) -> Any:
    raise InvalidRequest(f"{literal} is not a JSON number.")


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_int=_bounded, parse_constant=_not_a_number
)


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _depth(value: Any) -> int:
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        node, level = waiting.pop()
        if isinstance(node, dict | list):
            deepest = max(deepest, level)
            inner = node.values() if isinstance(node, dict) else node
            waiting.extend((child, level + 1) for child in inner)
    return deepest


def _refuse_bad_text(value: Any) -> None:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            if printable(node) != node or "\x00" in node:
                raise InvalidRequest("A string holds a NUL character or half of a surrogate pair.")
        elif isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.keys())
            waiting.extend(node.values())


def printable(text: str) -> str:
    """The text as UTF-8 can carry it, for repeating in an error."""
    return text.encode("utf-8", "replace").decode("utf-8")
