"""The tools of a response: functions, written flat, and web search under its several names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gateway_site.api.errors import InvalidRequest
from inference.prompt import Json, NamedTool, Tool, ToolChoice

WEB_SEARCH_TYPES = frozenset(
    {"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"}
)
_LOCATION = ("city", "country", "region", "timezone")


class Toolbox(Struct, frozen=True, kw_only=True):
    functions: tuple[Tool, ...] = ()
    # As chat completions have it; None where no search was asked for.
    web_search: Json | None = None
    # Of `inference.prompt.Option`, with the fields that asked.
    used: tuple[tuple[str, str], ...] = ()


def toolbox_of(tools: list[dict[str, Any]], *, may_use: bool = True) -> Toolbox:
    """Read the tools, or raise InvalidRequest naming one. A search that may not be used is left out."""
    functions: list[Tool] = []
    search: Json | None = None
    used: list[tuple[str, str]] = []
    for index, raw in enumerate(tools):
        param = f"tools[{index}]"
        kind = raw.get("type")
        if kind == "function":
            functions.append(_function(raw, param))
            used.append(("tools", "tools"))
        elif kind in WEB_SEARCH_TYPES:
            if search is not None:
                raise InvalidRequest("Web search is among the tools already.", param=param)
            search = _search_options(raw, param)
            if not may_use:
                continue
            used.append(("web_search_options", param))
            used += [("other_tools", f"{param}.{name}") for name in _narrowed_by(raw)]
        else:
            raise InvalidRequest("A tool is a function or web_search.", param=f"{param}.type")
    return Toolbox(functions=tuple(functions), web_search=search if may_use else None, used=tuple(used))


def choice_of(raw: Any, toolbox: Toolbox) -> ToolChoice | None:
    """Read the tool choice into that of chat completions, where web search is no tool to be chosen."""
    if not isinstance(raw, dict):
        # "required" with web search alone: it searches anyway, and there is no function to be called.
        return None if raw == "required" and not toolbox.functions else raw
    kind = raw.get("type")
    if kind == "function" and isinstance(name := raw.get("name"), str):
        return NamedTool(name)
    if kind == "allowed_tools" and raw.get("mode") in ("auto", "required"):
        return {"type": "allowed_tools", "allowed_tools": {"mode": raw["mode"], "tools": _allowed(raw)}}
    if kind in WEB_SEARCH_TYPES and toolbox.web_search is not None:
        return None
    raise InvalidRequest(
        "An object names a function, allowed tools, or a web search that is among the tools.",
        param="tool_choice",
    )


def _function(raw: Json, param: str) -> Tool:
    name, description = raw.get("name"), raw.get("description")
    parameters, strict = raw.get("parameters"), raw.get("strict")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("A function has a `name`.", param=f"{param}.name")
    if not isinstance(description, str | None):
        raise InvalidRequest("The description is a string.", param=f"{param}.description")
    if not isinstance(parameters, dict | None):
        raise InvalidRequest("The parameters are a JSON schema.", param=f"{param}.parameters")
    if not isinstance(strict, bool | None):
        raise InvalidRequest("`strict` is true or false.", param=f"{param}.strict")
    return Tool(name, description, parameters, strict)


def _search_options(raw: Json, param: str) -> Json:
    options: dict[str, Any] = {}
    size, location = raw.get("search_context_size"), raw.get("user_location")
    if size not in (None, "low", "medium", "high"):
        raise InvalidRequest(
            "The size of the search context is low, medium or high.", param=f"{param}.search_context_size"
        )
    if size is not None:
        options["search_context_size"] = size
    if location is not None:
        options["user_location"] = {"type": "approximate", "approximate": _approximate(location, param)}
    return options


def _approximate(location: Any, param: str) -> Json:
    if isinstance(location, dict):
        kept = {name: value for name in _LOCATION if (value := location.get(name)) is not None}
        if all(isinstance(value, str) for value in kept.values()):
            return kept
    raise InvalidRequest("The location is an object of strings.", param=f"{param}.user_location")


def _narrowed_by(raw: Json) -> Iterator[str]:
    """Name the limits that chat completions cannot express. To search without them would break a promise."""
    filters = raw.get("filters")
    if isinstance(filters, dict) and any(filters.values()):
        yield "filters"
    if raw.get("external_web_access") is False:
        yield "external_web_access"


def _allowed(raw: Json) -> list[dict[str, Any]]:
    tools = raw.get("tools")
    if not isinstance(tools, list) or not all(_is_function(tool) for tool in tools):
        raise InvalidRequest("Allowed tools are functions, by their names.", param="tool_choice.tools")
    return [{"type": "function", "function": {"name": tool["name"]}} for tool in tools]


def _is_function(tool: Any) -> bool:
    return isinstance(tool, dict) and tool.get("type") == "function" and isinstance(tool.get("name"), str)
