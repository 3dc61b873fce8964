"""Every text of a prompt that a model will read, for the policies that judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway_site.api.bodies.checkpoints import checkpoint
from inference.prompt import ImagePart, Prompt

# Whose strings are words of this program, not of the client.
_OUR_WORDS = {"role"}


def prompt_texts(prompt: Prompt) -> Iterator[str]:
    """
    Yield every string leaf: messages, parts, names, reasoning, calls and their arguments, tool definitions
    and schemas with the names in them, the predicted answer. In the order of the prompt.

    Walks whatever is there and leaves out by name, so that a field added to a Turn is judged before
    anyone thinks of it. A `data:` image is no text.
    """
    texts: list[str] = []
    for field in ("turns", "tools", "functions", "tool_choice", "function_call", "answer_format"):
        _gather(getattr(prompt, field), texts)
    _gather(prompt.prediction, texts)
    _gather(prompt.web_search_options, texts)
    _gather(prompt.sampling.stop, texts)
    yield from texts


def _gather(node: Any, texts: list[str]) -> None:
    if isinstance(node, str):
        texts.append(node)
        return
    for child in _children(node):
        # Most are one of these. Asked here, a plain message costs a fifth, and a schema less.
        kind = type(child)
        if kind is str:
            texts.append(child)
        elif kind is dict or kind is list:
            _gather_json(child, texts)
        elif child is not None:
            _gather(child, texts)


def _gather_json(node: dict[str, Any] | list[Any], texts: list[str]) -> None:
    """Gather the texts of JSON values of a body, which can be many: a faster `_gather`."""
    checkpoint()
    children: Iterable[Any] = node
    if type(node) is dict:
        texts.extend(node)
        children = node.values()
    for child in children:
        kind = type(child)
        if kind is str:
            texts.append(child)
        elif child and (kind is dict or kind is list):
            _gather_json(child, texts)


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, tuple | list):
        return node
    if isinstance(node, ImagePart):
        return (node.extra,) if node.url[:5].lower() == "data:" else (node.url, node.extra)
    if isinstance(node, Struct):
        return [getattr(node, name) for name in node.__struct_fields__ if name not in _OUR_WORDS]
    if isinstance(node, Mapping):
        return [*node.keys(), *node.values()]
    return ()
