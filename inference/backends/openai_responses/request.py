"""
A Prompt as the body of a Responses request, built field by field.

What the two formats cut differently: a turn of the model is several items here (its thoughts, its words,
each call), and the answer of a tool is an item and no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway_site.http_client.failures import OptionNotImplemented
from inference.backends.openai_chat.request import Server
from inference.prompt import (
    ImagePart,
    Json,
    JsonObject,
    JsonSchema,
    NamedTool,
    OtherPart,
    Part,
    Prompt,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    Turn,
)

# Chat completions have these and responses have not, whatever server it is.
LACKS: Final = frozenset(
    {
        "n",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "seed",
        "stop",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "structuredOutputs",
        "other_tools",
        "functions",
        "function_call",
        "reasoning_max_tokens",
        "modalities",
        "audio",
        "prediction",
    }
)
# What a kind of server has in its chat completions and, without a word, ignores in its responses.
LACKS_OF_SERVER: Final[Mapping[str, frozenset[str]]] = {
    "llama.cpp": frozenset({"json_object", "json_schema"}),
}
# Servers that say `completed` also of an answer which ran into its bound.
CUT_SILENTLY: Final = frozenset({"llama.cpp"})

_LOCATION = ("city", "country", "region", "timezone")


def responses_body(prompt: Prompt, *, model: str, server: Server) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        # System turns stay items, where they were. As `instructions` they would come back in the first
        # record of the answer and in its last, and long ones would not fit the bound of a record.
        "input": list(_items(prompt.turns, server)),
        "stream": True,
        "store": False,
        "max_output_tokens": prompt.output_bound,
    }
    optional = {
        "temperature": prompt.sampling.temperature,
        "top_p": prompt.sampling.top_p,
        "tools": _tools(prompt) or None,
        "tool_choice": _choice(prompt.tool_choice),
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "text": _text_options(prompt) or None,
        "reasoning": _reasoning(prompt.reasoning, server),
        "service_tier": prompt.service_tier,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return body | _hints(prompt, server)


def _hints(prompt: Prompt, server: Server) -> dict[str, Any]:
    """Cache keys arrive here isolated to their project already, never as the client wrote them."""
    hints = {
        "prompt_cache_key": prompt.cache.key,
        "prompt_cache_retention": prompt.cache.retention,
        "cache_salt": prompt.cache.salt,
        "safety_identifier": prompt.safety_identifier,
        "user": prompt.user,
    }
    return {name: value for name, value in hints.items() if value is not None and name in server.hints}


def _reasoning(reasoning: Reasoning, server: Server) -> dict[str, Any] | None:
    effort = reasoning.effort
    if effort is None and reasoning.enabled is False:
        effort = "none"
    return {"effort": effort} if effort is not None and server.has_effort else None


def _text_options(prompt: Prompt) -> dict[str, Any]:
    options: dict[str, Any] = {}
    match prompt.answer_format:
        case JsonObject():
            options["format"] = {"type": "json_object"}
        case JsonSchema() as wanted:
            described = {"description": wanted.description, "strict": wanted.strict}
            options["format"] = {
                "type": "json_schema",
                "name": wanted.name,
                "schema": wanted.schema,
                **{name: value for name, value in described.items() if value is not None},
            }
    if prompt.verbosity is not None:
        options["verbosity"] = prompt.verbosity
    return options


# --- The conversation ---------------------------------------------------------------------------------


def _items(turns: tuple[Turn, ...], server: Server) -> Iterator[dict[str, Any]]:
    for index, turn in enumerate(turns):
        if turn.role == "function" or turn.function_call is not None:
            raise OptionNotImplemented(
                "The backend of this model does not take legacy function calls.", param="messages"
            )
        if turn.role == "tool":
            yield _tool_output(turn)
        elif turn.role == "assistant":
            yield from _model_items(turn, index, server)
        else:
            role = "system" if turn.role == "developer" and not server.knows_developer else turn.role
            yield {"type": "message", "role": role, "content": _content(turn.content)}


def _model_items(turn: Turn, index: int, server: Server) -> Iterator[dict[str, Any]]:
    # OpenAI takes back only thoughts that it sealed itself. Servers whose thoughts are plain want an id.
    if turn.reasoning and server.reasoning_field:
        thoughts = [{"type": "reasoning_text", "text": turn.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{index}", "summary": [], "content": thoughts}
    parts = (TextPart(turn.content),) if isinstance(turn.content, str) else turn.content or ()
    content = [_output_part(part) for part in parts if not isinstance(part, TextPart) or part.text]
    if content:
        yield {"type": "message", "role": "assistant", "status": "completed", "content": content}
    for call in turn.tool_calls:
        yield _call(call)


def _output_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "output_text", "text": part.text, "annotations": []}
    if isinstance(part, OtherPart) and part.type == "refusal" and isinstance(part.fields.get("refusal"), str):
        return {"type": "refusal", "refusal": part.fields["refusal"]}
    raise _unknown_content()


def _call(call: ToolCall) -> dict[str, Any]:
    if call.name is None:
        raise OptionNotImplemented(
            "The backend of this model does not take this kind of tool call.", param="messages"
        )
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _tool_output(turn: Turn) -> dict[str, Any]:
    content = turn.content
    if isinstance(content, tuple) and len(content) == 1 and isinstance(content[0], TextPart):
        content = content[0].text  # the form that every server takes
    return {"type": "function_call_output", "call_id": turn.tool_call_id, "output": _content(content)}


def _content(content: str | tuple[Part, ...] | None) -> Any:
    return [_part(part) for part in content] if isinstance(content, tuple) else content or ""


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            image = {"type": "input_image", "image_url": part.url}
            return image if part.detail is None else {**image, "detail": part.detail}
        case OtherPart(type="file", fields={"file": {"file_data": str() as data, **described}}):
            named = {"filename": name} if isinstance(name := described.get("filename"), str) else {}
            return {"type": "input_file", "file_data": data, **named}
    raise _unknown_content()


def _unknown_content() -> OptionNotImplemented:
    return OptionNotImplemented(
        "The backend of this model does not take this kind of content.", param="messages"
    )


# --- Tools --------------------------------------------------------------------------------------------


def _tools(prompt: Prompt) -> list[dict[str, Any]]:
    tools = [_tool(tool) for tool in prompt.tools]
    if prompt.web_search_options is not None:
        tools.append(_web_search(prompt.web_search_options))
    return tools


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.name is None:
        raise OptionNotImplemented("The backend of this model takes functions as tools only.", param="tools")
    described: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description is not None:
        described["description"] = tool.description
    # Both are required here. Left out, strict would mean true, and most schemas are not made for that.
    described["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    described["strict"] = tool.strict is True
    return described


def _web_search(options: Json) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "web_search"}
    if (size := options.get("search_context_size")) in ("low", "medium", "high"):
        tool["search_context_size"] = size
    match options.get("user_location"):
        case {"approximate": Mapping() as near}:
            named = {name: each for name in _LOCATION if isinstance(each := near.get(name), str)}
            tool["user_location"] = {"type": "approximate", **named}
    return tool


def _choice(choice: ToolChoice | None) -> Any:
    if choice is None or isinstance(choice, str):
        return choice
    if isinstance(choice, NamedTool):
        return {"type": "function", "name": choice.name}
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"mode": str() as mode, "tools": list() as tools}}:
            return {"type": "allowed_tools", "mode": mode, "tools": [_allowed(tool) for tool in tools]}
    raise _unknown_choice()


def _allowed(tool: Any) -> dict[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str() as name}}:
            return {"type": "function", "name": name}
    raise _unknown_choice()


def _unknown_choice() -> OptionNotImplemented:
    return OptionNotImplemented(
        "The backend of this model does not take this choice of tools.", param="tool_choice"
    )
