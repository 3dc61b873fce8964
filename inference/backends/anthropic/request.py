"""
A Prompt as the body of a Messages request, built field by field.

What the two formats order differently: system turns leave the conversation, the answers of tools become
blocks of a user's turn, and turns of the same side that follow each other are one.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from gateway_site.api.errors import ProviderRejected
from gateway_site.http_client.failures import OptionNotImplemented
from gateway_site.http_client.ssrf_guard import BaseUrl
from inference.prompt import (
    ImagePart,
    JsonSchema,
    NamedTool,
    Part,
    Prompt,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    Turn,
)

VERSION = "2023-06-01"
Thinking = Literal["budget", "adaptive"]

LACKS = frozenset(
    {
        "n",
        "seed",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "json_object",
        "functions",
        "function_call",
        "web_search_options",
        "modalities",
        "audio",
        "prediction",
        "verbosity",
        "service_tier",
        "other_tools",
        "other_input",
    }
)
# The least that Messages accepts as a budget for thinking.
MIN_THINKING_TOKENS = 1024
# How much of the output bound each effort may spend on thinking, in percent.
_SHARE_OF_EFFORT = {
    "minimal": 10,
    "low": 25,
    "medium": 50,
    "high": 75,
    "xhigh": 85,
    "max": 90,
    "ultracode": 90,
}
_ADAPTIVE_EFFORT = {"minimal": "low", "ultracode": "max"}
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=]+)", re.IGNORECASE)
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def messages_url(base_url: BaseUrl) -> str:
    """The path of the Messages API at an address, given with or without `/v1` at its end."""
    return f"{str(base_url).removesuffix('/v1')}/v1/messages"


def credential_headers(api_key: str) -> dict[str, str]:
    version = {"anthropic-version": VERSION}
    return {**version, "x-api-key": api_key} if api_key else version


def messages_headers(api_key: str) -> dict[str, str]:
    """All headers that go out beside the body of a POST."""
    return {"Content-Type": "application/json", **credential_headers(api_key)}


def messages_body(prompt: Prompt, *, model: str, thinking: Thinking) -> dict[str, Any]:
    system = [text for turn in prompt.turns if _is_system(turn) and (text := _text(turn))]
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": prompt.output_bound,
        "messages": _messages(prompt.turns),
        "stream": True,
    }
    if system:
        body["system"] = "\n\n".join(system)
    if prompt.sampling.temperature is not None:
        body["temperature"] = prompt.sampling.temperature
    if prompt.sampling.top_p is not None:
        body["top_p"] = prompt.sampling.top_p
    if prompt.sampling.stop:
        body["stop_sequences"] = prompt.sampling.stop
    if prompt.tools:
        body["tools"] = [_tool(tool) for tool in prompt.tools]
        if choice := _tool_choice(prompt):
            body["tool_choice"] = choice
    if prompt.safety_identifier is not None:
        body["metadata"] = {"user_id": prompt.safety_identifier}
    body |= _thinking(prompt.reasoning, prompt.output_bound, thinking)
    if isinstance(prompt.answer_format, JsonSchema):
        answer = {"type": "json_schema", "schema": prompt.answer_format.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": answer}
    return body


def _is_system(turn: Turn) -> bool:
    return turn.role in ("system", "developer")


def _text(turn: Turn) -> str:
    if isinstance(turn.content, tuple):
        return "\n".join(part.text for part in turn.content if isinstance(part, TextPart))
    return turn.content or ""


def _thinking(reasoning: Reasoning, output_bound: int, style: Thinking) -> dict[str, Any]:
    if reasoning.enabled is False or reasoning.effort == "none":
        return {"thinking": {"type": "disabled"}}
    if not (reasoning.enabled or reasoning.effort or reasoning.max_tokens):
        return {}
    if style == "adaptive":
        fields: dict[str, Any] = {"thinking": {"type": "adaptive"}}
        if effort := reasoning.effort:
            fields["output_config"] = {"effort": _ADAPTIVE_EFFORT.get(effort, effort)}
        return fields
    share = _SHARE_OF_EFFORT.get(reasoning.effort or "medium", 50)
    wanted = reasoning.max_tokens or output_bound * share // 100
    # It must leave something of the bound to the answer. A bound that is too small for both gets no
    # thinking: an effort is a wish, the bound is what the client pays for.
    budget = min(max(wanted, MIN_THINKING_TOKENS), output_bound - 1)
    if budget < MIN_THINKING_TOKENS:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _messages(turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if _is_system(turn):
            continue
        role = "assistant" if turn.role == "assistant" else "user"
        blocks = _blocks(turn)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    if turn.role == "function" or turn.function_call is not None:
        raise OptionNotImplemented(
            "The backend of this model takes tool calls, not function calls.", param="messages"
        )
    blocks = _content(turn.content)
    if turn.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _id(turn.tool_call_id), "content": blocks}]
    # Reasoning stays behind: Messages takes its own back with a signature only, which nobody kept.
    return blocks + [_tool_use(call) for call in turn.tool_calls]


def _content(content: str | tuple[Part, ...] | None) -> list[dict[str, Any]]:
    """A turn's content as blocks, without empty texts, which Messages refuses."""
    if isinstance(content, tuple):
        return [_part(part) for part in content if not (isinstance(part, TextPart) and not part.text)]
    return [{"type": "text", "text": content}] if content else []


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            # Not its `cache_control`: the cache belongs to the operator's account, so that a hit would
            # tell one tenant what another has sent.
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image", "source": _image(part.url)}
    raise OptionNotImplemented("The backend of this model takes text and images only.", param="messages")


def _image(url: str) -> dict[str, Any]:
    if match := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": match[1].lower(), "data": match[2]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise ProviderRejected("An image must be a `data:` URL in base64.", param="messages")


def _tool_use(call: ToolCall) -> dict[str, Any]:
    if call.name is None:
        raise OptionNotImplemented(
            "The backend of this model does not take this kind of tool call.", param="messages"
        )
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as the object that Messages wants. What a model once wrote instead is kept as text."""
    try:
        value = msgspec.json.decode(arguments) if arguments else {}
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _id(id: str | None) -> str:
    """A call's id in the alphabet of Messages: a conversation may have begun on another backend."""
    return _FOREIGN.sub("_", id or "") or "unnamed"


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.name is None:
        raise OptionNotImplemented("The backend of this model takes functions as tools only.", param="tools")
    fields: dict[str, Any] = {
        "name": tool.name,
        "input_schema": tool.parameters or {"type": "object", "properties": {}},
    }
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return fields


def _tool_choice(prompt: Prompt) -> dict[str, Any] | None:
    choice: dict[str, Any] | None = None
    match prompt.tool_choice:
        case None:
            pass
        case "none":
            return {"type": "none"}
        case "auto":
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case NamedTool(name=name):
            choice = {"type": "tool", "name": name}
        case _:
            raise OptionNotImplemented(param="tool_choice")
    if prompt.parallel_tool_calls is False:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return choice
