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
_NO_WORDS = frozenset(
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


class Words:
    """Collects while it checks. `remote` lets http(s) addresses of images and documents through."""

    def __init__(self, *, remote: bool) -> None:
        self.texts: list[str] = []
        self.images = 0
        self.pages = 0
        self._remote = remote

    def add_content(self, said: Any, at: str, *, counts_thoughts: bool = True) -> None:
        """A string, or a list of blocks."""
        if isinstance(said, str):
            self.texts.append(said)
        elif isinstance(said, list):
            for place, block in enumerate(said):
                self._add_block(block, f"{at}[{place}]", counts_thoughts)
        elif said is not None:
            raise InvalidRequest("Content is a string or a list of blocks.", param=at)

    def add_json(self, value: Any) -> None:
        """A schema, or the arguments of a call: a model reads them as JSON."""
        self.texts.append(msgspec.json.encode(value).decode())

    def _add_block(self, block: Any, at: str, counts_thoughts: bool) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        match kind:
            case "text":
                self.texts.append(text_of(block, "text", at))
            case "image":
                self._add_image(_source_of(block, at), f"{at}.source")
            case "document":
                self._add_document(block, at)
            case "thinking":
                if counts_thoughts:
                    self.texts.append(text_of(block, "thinking", at))
            case "tool_use" | "server_tool_use":
                self.texts.append(text_of(block, "name", at))
                self.add_json(block.get("input"))
            case "tool_result":
                self.add_content(block.get("content"), f"{at}.content")
            case str():
                self._add_rest(block, at)
            case _:
                raise InvalidRequest("A block has a `type`.", param=f"{at}.type")

    def _add_image(self, source: Json, at: str) -> None:
        self.images += 1
        if source.get("type") == "base64":
            image = f"data:{text_of(source, 'media_type', at)};base64,{text_of(source, 'data', at)}"
            content.require_safe_image(image, f"{at}.data", remote=self._remote)
        else:
            self._require_address(source, at)

    def _add_document(self, block: Json, at: str) -> None:
        self.texts += [said for name in ("title", "context") if isinstance(said := block.get(name), str)]
        source, at = _source_of(block, at), f"{at}.source"
        match source.get("type"):
            case "text":
                self.texts.append(text_of(source, "data", at))
            case "content":
                self.add_content(source.get("content"), f"{at}.content")
            case "base64":
                self.pages += _pages_of(text_of(source, "data", at), f"{at}.data")
            case _:
                self._require_address(source, at)
                self.pages += 1

    def _require_address(self, source: Json, at: str) -> None:
        if source.get("type") != "url":
            raise InvalidRequest("Nothing is stored here: send the data itself.", param=f"{at}.type")
        content.require_safe_image(text_of(source, "url", at), f"{at}.url", remote=self._remote)

    def _add_rest(self, node: Any, at: str) -> None:
        """The strings of a block whose parts have no meaning to us, such as what a search has found."""
        if isinstance(node, str):
            self.texts.append(node)
        elif isinstance(node, list):
            for place, inner in enumerate(node):
                self._add_rest(inner, f"{at}[{place}]")
        elif isinstance(node, Mapping):
            if node.get("type") in ("image", "document"):
                self._add_block(node, at, False)
                return
            for name, inner in node.items():
                if name not in _NO_WORDS:
                    self._add_rest(inner, f"{at}.{name}")


def text_of(fields: Json, name: str, at: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string.", param=f"{at}.{name}")
    return value


def _source_of(block: Json, at: str) -> Json:
    source = block.get("source")
    if not isinstance(source, dict):
        raise InvalidRequest("A `source` is an object.", param=f"{at}.source")
    return source


def _pages_of(data: str, at: str) -> int:
    """As many as can be seen from outside; one at least."""
    try:
        document = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The data of the document is not valid base64.", param=at) from None
    return max(1, len(_PAGE.findall(document)))
