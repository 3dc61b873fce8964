"""Reading a request for a count of tokens: bytes in, what is to be counted out."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from gateway_site.api.bodies.checkpoints import checkpoint
from gateway_site.api.errors import InvalidRequest
from inference.dialects import body, bounds
from inference.dialects.addresses import refuse_remote_references
from inference.dialects.messages.request import CountTokensRequest, MessagesTurn
from inference.dialects.messages.texts import Words, text_of
from inference.prompt import Json

# The interface's names of server tools, and the ones under which the Messages API has them. It never had a
# fetch of that date.
_ALIASES = {"web_search_2025_03_05": "web_search_20250305", "web_fetch_2025_03_05": "web_fetch_20250910"}
_SERVER_TOOL = re.compile(r"web_(search|fetch)_20[0-9]{6}")
# What a backend that counts is told. The rest changes no number, or is not for others to see.
_TOLD = ("tool_choice", "thinking", "output_config", "output_format")


class CountCall(Struct, frozen=True, kw_only=True):
    """A request for a count, understood."""

    model: str
    texts: tuple[str, ...]
    # Messages, and the system's words as one.
    turns: int
    images: int
    pages: int
    # The body for a backend that counts by itself; the model is for whoever sends it.
    upstream: Json


def parse(raw: bytes, *, remote_images: bool = False) -> CountCall:
    """
    The call that a request body describes, or InvalidRequest naming the field at fault.

    Pure and without I/O, so a caller can move a large body off the event loop.
    """
    value = body.loads(raw)
    request = body.convert(value, CountTokensRequest)
    _require_bounds(request)
    words = Words(remote=remote_images)
    words.add_content(request.system, "system")
    newest = _newest_turn(request.messages)
    for place, message in enumerate(request.messages):
        # Thoughts of turns that are over are dropped before a model reads on.
        checkpoint()
        at = f"messages[{place}].content"
        words.add_content(message.content, at, counts_thoughts=place >= newest)
    tools = [_tool(tool, f"tools[{place}]", words) for place, tool in enumerate(request.tools or ())]
    if request.output_config is not None or request.output_format is not None:
        refuse_remote_references(request.output_config, "output_config")
        refuse_remote_references(request.output_format, "output_format")
        words.add_json([request.output_config, request.output_format])
    return CountCall(
        model=request.model,
        texts=tuple(words.texts),
        turns=len(request.messages) + bool(request.system),
        images=words.images,
        pages=words.pages,
        upstream=_upstream(request, tools),
    )


def _require_bounds(request: CountTokensRequest) -> None:
    bounds.require_few_messages(request.messages, "messages")
    bounds.require_few_parts((message.content for message in request.messages), "messages")
    bounds.require_few_parts([request.system], "system")
    bounds.require_few_tools(request.tools, "tools")


def _newest_turn(messages: list[MessagesTurn]) -> int:
    """Where the last turn of the user begins that is not just the answers of tools."""
    for place in range(len(messages) - 1, -1, -1):
        said = messages[place].content
        if messages[place].role == "user" and not (
            isinstance(said, list) and any(block.get("type") == "tool_result" for block in said)
        ):
            return place
    return 0


def _tool(tool: dict[str, Any], at: str, words: Words) -> dict[str, Any]:
    """The tool as the Messages API has it; its words are added to the others."""
    kind = tool.get("type")
    if kind in (None, "custom"):
        words.texts.append(text_of(tool, "name", at))
        if tool.get("description") is not None:
            words.texts.append(text_of(tool, "description", at))
        if not isinstance(tool.get("input_schema"), dict):
            raise InvalidRequest("The schema of the input is an object.", param=f"{at}.input_schema")
        refuse_remote_references(tool["input_schema"], f"{at}.input_schema")
        words.add_json(tool["input_schema"])
        return tool
    kind = _ALIASES.get(kind, kind) if isinstance(kind, str) else ""
    if not _SERVER_TOOL.fullmatch(kind):
        raise InvalidRequest("A tool is a custom one, or web search or fetch.", param=f"{at}.type")
    words.texts.append(text_of(tool, "name", at))
    return {**tool, "type": kind}


def _upstream(request: CountTokensRequest, tools: list[dict[str, Any]]) -> Json:
    told: dict[str, Any] = {
        "messages": [
            {"role": message.role, "content": message.content}
            for message in request.messages
            if message.role != "system"
        ]
    }
    # Words of the system are in one place to every version of the API, and in the conversation to few.
    system = _blocks(request.system)
    for message in request.messages:
        if message.role == "system":
            system += _blocks(message.content)
    if system:
        told["system"] = request.system if system == _blocks(request.system) else system
    if tools:
        told["tools"] = tools
    return told | {name: value for name in _TOLD if (value := getattr(request, name)) is not None}


def _blocks(said: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if isinstance(said, str):
        return [{"type": "text", "text": said}] if said else []
    return list(said or ())
