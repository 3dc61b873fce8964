"""Reading a request for a count of tokens: bytes in, what is to be counted out."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from gateway_site.api.bodies.checkpoints import checkpoint
from gateway_site.api.errors import InvalidRequest
from inference.dialects import body, bounds
from inference.dialects.addresses import refuse_remote_references
from inference.dialects.messages.input_content import InputContent, string_field
from inference.dialects.messages.request import CountTokensRequest, MessagesTurn
from inference.prompt import Json

# The interface's names of server tools, and the ones under which the Messages API has them. It never had a
# fetch of that date.
_ALIASES = {"web_search_2025_03_05": "web_search_20250305", "web_fetch_2025_03_05": "web_fetch_20250910"}
_SERVER_TOOL = re.compile(r"web_(search|fetch)_20[0-9]{6}")
# What a backend that counts gets beside the input. The rest changes no number, or is not for others to see.
_PASSED_FIELDS = ("tool_choice", "thinking", "output_config", "output_format")


class ParsedCountRequest(Struct, frozen=True, kw_only=True):
    """A request for a count, read and checked."""

    model: str
    texts: tuple[str, ...]
    # Messages, and the system prompt as one.
    turns: int
    images: int
    pages: int
    # The body for a backend that counts by itself; the model is for whoever sends it.
    upstream: Json


def parse(raw: bytes, *, remote_images: bool = False) -> ParsedCountRequest:
    """
    Read a request body, or raise InvalidRequest naming the field at fault.

    Pure and without I/O, so a caller can move a large body off the event loop.
    """
    value = body.loads(raw)
    request = body.convert(value, CountTokensRequest)
    _require_bounds(request)
    collected = InputContent(remote=remote_images)
    collected.add_content(request.system, "system")
    newest_turn = _newest_turn(request.messages)
    for index, message in enumerate(request.messages):
        # Thoughts of turns that are over are dropped before a model reads on.
        checkpoint()
        param = f"messages[{index}].content"
        collected.add_content(message.content, param, counts_reasoning=index >= newest_turn)
    tools = [_tool(tool, f"tools[{index}]", collected) for index, tool in enumerate(request.tools or ())]
    if request.output_config is not None or request.output_format is not None:
        refuse_remote_references(request.output_config, "output_config")
        refuse_remote_references(request.output_format, "output_format")
        collected.add_json([request.output_config, request.output_format])
    return ParsedCountRequest(
        model=request.model,
        texts=tuple(collected.texts),
        turns=len(request.messages) + bool(request.system),
        images=collected.images,
        pages=collected.pages,
        upstream=_upstream(request, tools),
    )


def _require_bounds(request: CountTokensRequest) -> None:
    bounds.require_few_messages(request.messages, "messages")
    bounds.require_few_parts((message.content for message in request.messages), "messages")
    bounds.require_few_parts([request.system], "system")
    bounds.require_few_tools(request.tools, "tools")


def _newest_turn(messages: list[MessagesTurn]) -> int:
    """Find where the last turn of the user begins that is not just the answers of tools."""
    for index in range(len(messages) - 1, -1, -1):
        content = messages[index].content
        if messages[index].role == "user" and not (
            isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
        ):
            return index
    return 0


def _tool(tool: dict[str, Any], param: str, collected: InputContent) -> dict[str, Any]:
    """Read a tool as the Messages API has it; its texts are collected."""
    kind = tool.get("type")
    if kind in (None, "custom"):
        collected.texts.append(string_field(tool, "name", param))
        if tool.get("description") is not None:
            collected.texts.append(string_field(tool, "description", param))
        if not isinstance(tool.get("input_schema"), dict):
            raise InvalidRequest("The schema of the input is an object.", param=f"{param}.input_schema")
        refuse_remote_references(tool["input_schema"], f"{param}.input_schema")
        collected.add_json(tool["input_schema"])
        return tool
    kind = _ALIASES.get(kind, kind) if isinstance(kind, str) else ""
    if not _SERVER_TOOL.fullmatch(kind):
        raise InvalidRequest("A tool is a custom one, or web search or fetch.", param=f"{param}.type")
    collected.texts.append(string_field(tool, "name", param))
    return {**tool, "type": kind}


def _upstream(request: CountTokensRequest, tools: list[dict[str, Any]]) -> Json:
    upstream: dict[str, Any] = {
        "messages": [
            {"role": message.role, "content": message.content}
            for message in request.messages
            if message.role != "system"
        ]
    }
    # Every version of the API takes system prompts in `system`, and few take them in the conversation.
    system = _blocks(request.system)
    for message in request.messages:
        if message.role == "system":
            system += _blocks(message.content)
    if system:
        upstream["system"] = request.system if system == _blocks(request.system) else system
    if tools:
        upstream["tools"] = tools
    return upstream | {
        name: value for name in _PASSED_FIELDS if (value := getattr(request, name)) is not None
    }


def _blocks(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())
