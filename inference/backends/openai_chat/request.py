"""
A Prompt as the body of a chat completion request.

Built field by field: what is not named here never leaves, whatever a client wrote. Servers that speak
chat completions differ in small ways; `SERVERS` holds what we know of each, and a backend's own `lacks`
adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway_site.http_client.failures import OptionNotImplemented
from inference.prompt import (
    ImagePart,
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

# Not expressible in a stream of chat chunks, or in the events that we make of it.
_NOWHERE = frozenset({"prompt_logprobs", "other_tools"})
_ONLY_OPENAI = frozenset(
    {"web_search_options", "modalities", "audio", "prediction", "verbosity", "service_tier"}
)
_LEGACY = frozenset({"functions", "function_call"})

# Parts beside text and images that servers know; each keeps its content under its own name.
_OTHER_PARTS = frozenset({"refusal", "input_audio", "file", "video_url", "audio_url"})


@dataclass(frozen=True, slots=True)
class Server:
    """How one kind of server differs from the others."""

    lacks: frozenset[str]
    bound_field: str = "max_tokens"
    # Others take `developer` for an unknown role, or their template drops the turn.
    knows_developer: bool = False
    # Under which name earlier reasoning goes back, if at all. OpenAI refuses unknown keys in messages.
    reasoning_field: str | None = None
    # Whether thinking is switched through the chat template.
    has_template_switch: bool = False
    has_continuous_usage: bool = False
    has_effort: bool = True
    # Whether a connection can be used again after a stream. One that is closed without a word, just as the
    # next request goes out on it, is a request whose outcome nobody knows.
    keeps_connections: bool = True
    # Whether it counts input tokens as the Messages API does, whatever its answers are asked for with.
    counts_messages: bool = False
    # Hints: fields that it knows and that change no answer.
    hints: frozenset[str] = frozenset()


SERVERS = {
    "openai": Server(
        lacks=_NOWHERE | {"reasoning_max_tokens"},
        bound_field="max_completion_tokens",
        knows_developer=True,
        hints=frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"}),
    ),
    "vllm": Server(
        lacks=_NOWHERE | _ONLY_OPENAI | _LEGACY | {"reasoning_max_tokens"},
        reasoning_field="reasoning_content",
        has_template_switch=True,
        has_continuous_usage=True,
        hints=frozenset({"cache_salt"}),
    ),
    "sglang": Server(
        lacks=_NOWHERE | _ONLY_OPENAI | _LEGACY | {"reasoning_max_tokens"},
        reasoning_field="reasoning_content",
        has_template_switch=True,
    ),
    "llama.cpp": Server(
        # Asked for several completions it gives them, and reports the tokens of one.
        lacks=_NOWHERE | _ONLY_OPENAI | _LEGACY | {"n", "reasoning_effort", "reasoning_max_tokens"},
        reasoning_field="reasoning_content",
        has_template_switch=True,
        has_effort=False,
        keeps_connections=False,
        counts_messages=True,
    ),
    "ollama": Server(
        lacks=_NOWHERE
        | _ONLY_OPENAI
        | _LEGACY
        | {
            "n",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "tool_choice",
            "parallel_tool_calls",
            "reasoning_max_tokens",
        },
    ),
    # Somebody's: it may be one of those that close without a word, so it is asked on a new connection.
    "other": Server(
        lacks=_NOWHERE | {"reasoning_max_tokens"},
        hints=frozenset({"prompt_cache_key", "user"}),
        keeps_connections=False,
    ),
}


def credential_headers(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def headers_for(server: Server, api_key: str) -> dict[str, str]:
    """All headers of a POST to this server, whichever of its two interfaces is asked."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    headers |= credential_headers(api_key)
    if not server.keeps_connections:
        headers["Connection"] = "close"
    return headers


def chat_body(prompt: Prompt, *, model: str, server: Server) -> dict[str, Any]:
    sampling = prompt.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(turn, server) for turn in prompt.turns],
        # Always a stream with usage: one way to read an answer, exact tokens even when it is cut short.
        "stream": True,
        "stream_options": {"include_usage": True},
        server.bound_field: prompt.output_bound,
    }
    if server.has_continuous_usage:
        body["stream_options"]["continuous_usage_stats"] = True
    if prompt.completions != 1:
        body["n"] = prompt.completions
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.logprobs:
        body["logprobs"] = True
    optional = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logit_bias": sampling.logit_bias,
        "seed": sampling.seed,
        "top_logprobs": sampling.top_logprobs,
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "web_search_options": prompt.web_search_options,
        "audio": prompt.audio,
        "prediction": prompt.prediction,
        "verbosity": prompt.verbosity,
        "service_tier": prompt.service_tier,
        "modalities": prompt.modalities or None,
        "tools": [_tool(tool) for tool in prompt.tools] or None,
        "tool_choice": _choice(prompt.tool_choice),
        "functions": [_function(function) for function in prompt.functions] or None,
        "function_call": _function_choice(prompt.function_call),
        "response_format": _response_format(prompt.answer_format),
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return body | _reasoning(prompt.reasoning, server) | _hints(prompt, server)


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


def _reasoning(reasoning: Reasoning, server: Server) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    effort = reasoning.effort
    if server.has_template_switch:
        if reasoning.enabled is not None:
            fields["chat_template_kwargs"] = {"enable_thinking": reasoning.enabled}
    elif effort is None and reasoning.enabled is False:
        effort = "none"
    if effort is not None and server.has_effort:
        fields["reasoning_effort"] = effort
    return fields


def _message(turn: Turn, server: Server) -> dict[str, Any]:
    role: str = turn.role
    if role == "developer" and not server.knows_developer:
        role = "system"
    message: dict[str, Any] = {"role": role, "content": _content(turn.content)}
    if turn.name is not None:
        message["name"] = turn.name
    if turn.tool_call_id is not None:
        message["tool_call_id"] = turn.tool_call_id
    if turn.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in turn.tool_calls]
    if turn.function_call is not None:
        call = turn.function_call
        message["function_call"] = {"name": call.name, "arguments": call.arguments}
    if turn.reasoning and server.reasoning_field:
        message[server.reasoning_field] = turn.reasoning
    return message


def _content(content: str | tuple[Part, ...] | None) -> Any:
    return [_part(part) for part in content] if isinstance(content, tuple) else content


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image = {"url": part.url}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case OtherPart() if part.type in _OTHER_PARTS and part.type in part.fields:
            return {"type": part.type, part.type: part.fields[part.type]}
    raise OptionNotImplemented(
        "The backend of this model does not take this kind of content.", param="messages"
    )


def _tool_call(call: ToolCall) -> dict[str, Any]:
    if call.name is None:
        raise OptionNotImplemented(
            "The backend of this model does not take this kind of tool call.", param="messages"
        )
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.name is None:
        raise OptionNotImplemented("The backend of this model takes functions as tools only.", param="tools")
    function = _function(tool)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    return function


def _choice(choice: ToolChoice | None) -> Any:
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _function_choice(choice: ToolChoice | None) -> Any:
    return {"name": choice.name} if isinstance(choice, NamedTool) else choice


def _response_format(answer_format: JsonObject | JsonSchema | None) -> dict[str, Any] | None:
    match answer_format:
        case JsonObject():
            return {"type": "json_object"}
        case JsonSchema():
            schema: dict[str, Any] = {"name": answer_format.name, "schema": answer_format.schema}
            if answer_format.description is not None:
                schema["description"] = answer_format.description
            if answer_format.strict is not None:
                schema["strict"] = answer_format.strict
            return {"type": "json_schema", "json_schema": schema}
    return None
