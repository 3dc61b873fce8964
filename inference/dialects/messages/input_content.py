"""What of a Messages-shaped input a model would read: its texts, images and pages."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway_site.api.errors import InvalidRequest
from inference.dialects import content
from inference.prompt import Json

# Keys whose strings say how a block is to be handled, or are opaque: no model reads them as they are.
_UNREAD_KEYS = frozenset(
    {
        "cache_control",
        "caller",
        "citations",
        "data",
        "encrypted_content",
        "encrypted_index",
        "encrypted_stdout",
        "file_id",
        "id",
        "media_type",
        "signature",
        "tool_use_id",
        "type",
    }
)
_PAGE = re.compile(rb"/Type\s*/Page(?![a-z])")


class InputContent:
    """
    Texts, images and pages that a model would read, collected while they are checked.

    `remote` lets http(s) addresses of images and documents through.
    """

    def __init__(self, *, remote: bool) -> None:
        self.texts: list[str] = []
        self.images = 0
        self.pages = 0
        self._remote = remote

    def add_content(self, value: Any, param: str, *, counts_reasoning: bool = True) -> None:
        """Add content that is a string or a list of blocks."""
        if isinstance(value, str):
            self.texts.append(value)
        elif isinstance(value, list):
            for index, block in enumerate(value):
                self._add_block(block, f"{param}[{index}]", counts_reasoning)
        elif value is not None:
            raise InvalidRequest("Content is a string or a list of blocks.", param=param)

    def add_json(self, value: Any) -> None:
        """Add a schema, or the arguments of a call: a model reads them as JSON."""
        self.texts.append(msgspec.json.encode(value).decode())

    def _add_block(self, block: Any, param: str, counts_reasoning: bool) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        match kind:
            case "text":
                self.texts.append(string_field(block, "text", param))
            case "image":
                self._add_image(_source_of(block, param), f"{param}.source")
            case "document":
                self._add_document(block, param)
            case "thinking":
                if counts_reasoning:
                    self.texts.append(string_field(block, "thinking", param))
            case "tool_use" | "server_tool_use":
                self.texts.append(string_field(block, "name", param))
                self.add_json(block.get("input"))
            case "tool_result":
                self.add_content(block.get("content"), f"{param}.content")
            case str():
                self._add_strings(block, param)
            case _:
                raise InvalidRequest("A block has a `type`.", param=f"{param}.type")

    def _add_image(self, source: Json, param: str) -> None:
        self.images += 1
        if source.get("type") == "base64":
            media_type, data = string_field(source, "media_type", param), string_field(source, "data", param)
            url = f"data:{media_type};base64,{data}"
            content.require_safe_image(url, f"{param}.data", remote=self._remote)
        else:
            self._require_address(source, param)

    def _add_document(self, block: Json, param: str) -> None:
        self.texts += [value for name in ("title", "context") if isinstance(value := block.get(name), str)]
        source, param = _source_of(block, param), f"{param}.source"
        match source.get("type"):
            case "text":
                self.texts.append(string_field(source, "data", param))
            case "content":
                self.add_content(source.get("content"), f"{param}.content")
            case "base64":
                self.pages += _pages_of(string_field(source, "data", param), f"{param}.data")
            case _:
                self._require_address(source, param)
                self.pages += 1

    def _require_address(self, source: Json, param: str) -> None:
        if source.get("type") != "url":
            raise InvalidRequest("Nothing is stored here: send the data itself.", param=f"{param}.type")
        content.require_safe_image(string_field(source, "url", param), f"{param}.url", remote=self._remote)

    def _add_strings(self, node: Any, param: str) -> None:
        """Add the strings of a block whose parts have no meaning to us, such as what a search has found."""
        if isinstance(node, str):
            self.texts.append(node)
        elif isinstance(node, list):
            for index, inner in enumerate(node):
                self._add_strings(inner, f"{param}[{index}]")
        elif isinstance(node, Mapping):
            if node.get("type") in ("image", "document"):
                self._add_block(node, param, False)
                return
            for name, inner in node.items():
                if name not in _UNREAD_KEYS:
                    self._add_strings(inner, f"{param}.{name}")


def string_field(fields: Json, name: str, param: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string.", param=f"{param}.{name}")
    return value


def _source_of(block: Json, param: str) -> Json:
    source = block.get("source")
    if not isinstance(source, dict):
        raise InvalidRequest("A `source` is an object.", param=f"{param}.source")
    return source


def _pages_of(data: str, param: str) -> int:
    """Count the pages that can be seen from outside; one at least."""
    try:
        document = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The data of the document is not valid base64.", param=param) from None
    return max(1, len(_PAGE.findall(document)))
