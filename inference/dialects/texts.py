"""Every text of a prompt that a model will read, for the policies that judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from inference.events import ImagePart, Prompt

# Whose strings are words of this program, not of the client.
_OUR_WORDS = {"role"}


def texts_of(prompt: Prompt) -> Iterator[str]:
    """
    Every string leaf: messages, parts, names, reasoning, calls and their arguments, tool definitions and
    schemas with the names in them, the predicted answer. In the order of the prompt.

    It walks whatever is there and leaves out by name, so that a field added to a Turn is judged before
    anyone thinks of it. A `data:` image is no text.
    """
    for field in ("turns", "tools", "functions", "tool_choice", "function_call", "answer_format"):
        yield from _leaves(getattr(prompt, field))
    yield from _leaves(prompt.prediction)
    yield from _leaves(prompt.web_search_options)
    yield from _leaves(prompt.sampling.stop)


def _leaves(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    for child in _children(node):
        yield from _leaves(child)


def _children(node: Any) -> Iterable[Any]:
    match node:
        case ImagePart(url=url, extra=extra):
            return (extra,) if url[:5].lower() == "data:" else (url, extra)
        case Struct():
            return [getattr(node, name) for name in node.__struct_fields__ if name not in _OUR_WORDS]
        case Mapping():
            return [*node.keys(), *node.values()]
        case tuple() | list():
            return node
        case _:
            return ()
