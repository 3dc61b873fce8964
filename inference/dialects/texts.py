"""Every text of a prompt that a model will read, for the policies that judge it and for whoever counts it."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from gateway_site.api.bodies.checkpoints import checkpoint
from inference.prompt import ImagePart, OtherPart, Prompt, Turn

# Whose strings are words of this program, not of the client.
_OUR_WORDS = {"role"}
# Shorter data is counted as a text: it is a few tokens, and may be one.
_MIN_DATA_LENGTH = 256


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


def files_of(prompt: Prompt) -> list[OtherPart]:
    """The files and clips of the prompt, of audio or video: what is neither text nor image."""
    return [
        part
        for turn in prompt.turns
        if isinstance(turn.content, tuple)
        for part in turn.content
        if isinstance(part, OtherPart) and part.type != "refusal"
    ]


def without_file_data(prompt: Prompt) -> Prompt:
    """
    The prompt without the base64 data of its files and clips, which no model reads as text.

    For counting alone. What a policy judges is the prompt itself.
    """
    return structs.replace(prompt, turns=tuple(map(_turn_without_data, prompt.turns)))


def _turn_without_data(turn: Turn) -> Turn:
    if not isinstance(turn.content, tuple):
        return turn
    parts = (
        structs.replace(part, fields=_without_data(part.fields)) if isinstance(part, OtherPart) else part
        for part in turn.content
    )
    return structs.replace(turn, content=tuple(parts))


def _without_data(node: Any) -> Any:
    if isinstance(node, str):
        return None if _is_data(node) else node
    if isinstance(node, Mapping):
        return {name: _without_data(child) for name, child in node.items()}
    if isinstance(node, list):
        return [_without_data(child) for child in node]
    return node


def _is_data(text: str) -> bool:
    """Whether this is base64, with or without the head of a `data:` address. Anything else is text."""
    if len(text) < _MIN_DATA_LENGTH or not text.isascii():
        return False
    head, _, data = text.partition(",") if text[:5].lower() == "data:" else (";base64", "", text)
    if not head.lower().endswith(";base64"):
        return False
    try:
        binascii.a2b_base64(data.replace("\r", "").replace("\n", ""), strict_mode=True)
    except binascii.Error:
        return False
    return True


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
