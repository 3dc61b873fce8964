"""Reading a chat request: bytes in, a neutral Prompt and the flags of the answer out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from gateway_site.api.bodies.checkpoints import checkpoint
from gateway_site.api.errors import InvalidRequest
from inference.dialects import body, bounds, content
from inference.dialects.addresses import refuse_addresses, refuse_remote_references
from inference.dialects.base import ParsedRequest
from inference.dialects.chat.request import (
    ChatCompletionRequest,
    ChatMessage,
    JsonObjectFormat,
    JsonSchemaFormat,
)
from inference.prompt import (
    DEFAULT_OUTPUT_BOUND,
    NOTHING,
    CacheHints,
    ImagePart,
    Json,
    JsonObject,
    JsonSchema,
    NamedTool,
    OtherPart,
    Part,
    Prompt,
    Reasoning,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
    Turn,
)

# Longer ones are replaced by a digest.
MAX_SALT_LENGTH = 512


class ParsedChatRequest(ParsedRequest, frozen=True):
    """A chat request, read and checked."""

    include_usage: bool


def parse(raw: bytes, *, remote_images: bool = False) -> ParsedChatRequest:
    """
    Read a request body, or raise InvalidRequest naming the field at fault.

    `remote_images` lets http(s) addresses through, for deployments whose backends may fetch them.
    Pure and without I/O, so a caller can move a large body off the event loop.
    """
    value = body.loads(raw)
    request = body.convert(value, ChatCompletionRequest)
    _refuse_conflicts(request)
    _require_bounds(request)
    _refuse_remote(request, remote=remote_images)
    turns = tuple(_turns(request.messages, value["messages"], remote=remote_images))
    images, used = _input_options(turns)
    used.update(_options(request))
    return ParsedChatRequest(
        prompt=_prompt(request, turns, images, used),
        policy_ids=tuple(request.policy_ids),
        stream=request.stream,
        include_usage=request.stream_options is not None and request.stream_options.include_usage is True,
    )


def _refuse_conflicts(request: ChatCompletionRequest) -> None:
    if request.store:
        raise InvalidRequest("Nothing is stored here: only false is accepted.", param="store")
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise InvalidRequest(
            "Send exactly one of max_tokens and max_completion_tokens.", param="max_completion_tokens"
        )


def _require_bounds(request: ChatCompletionRequest) -> None:
    bounds.require_few_messages(request.messages, "messages")
    # Asked for what is there alone: most requests are a few messages of plain text.
    if contents := [sent for message in request.messages if type(sent := message.content) is list]:
        bounds.require_few_parts(contents, "messages")
    if request.tools:
        bounds.require_few_tools(request.tools, "tools")
    if request.functions:
        bounds.require_few_tools(request.functions, "functions")


def _refuse_remote(request: ChatCompletionRequest, *, remote: bool) -> None:
    """Refuse addresses outside of messages. Those in messages are checked while messages are read."""
    for name in ("web_search_options", "audio", "tool_choice", "function_call"):
        if isinstance(sent := getattr(request, name), dict):
            refuse_addresses(sent, name, remote=remote)
    if request.prediction is not None:
        _refuse_in_prediction(request.prediction, remote=remote)
    if isinstance(request.response_format, JsonSchemaFormat):
        schema = request.response_format.json_schema.schema
        refuse_remote_references(schema, "response_format.json_schema.schema")
    for index, tool in enumerate(request.tools or ()):
        refuse_remote_references(tool, f"tools[{index}]")
    for index, function in enumerate(request.functions or ()):
        refuse_remote_references(function, f"functions[{index}]")


def _refuse_in_prediction(prediction: Json, *, remote: bool) -> None:
    """Refuse addresses in a prediction, whose content is text or a list of parts as a message's is."""
    predicted = prediction.get("content")
    other_fields = {name: value for name, value in prediction.items() if name != "content"}
    refuse_addresses(other_fields, "prediction", remote=remote)
    if not isinstance(predicted, str | None):
        for index, fields in enumerate(predicted if isinstance(predicted, list) else [predicted]):
            if not isinstance(fields, dict):
                raise InvalidRequest(
                    "A part of the content is an object.", param=f"prediction.content[{index}]"
                )
            list(content.parts_of(fields, f"prediction.content[{index}]", remote=remote))


def _prompt(
    request: ChatCompletionRequest, turns: tuple[Turn, ...], images: int, used: dict[str, str]
) -> Prompt:
    return Prompt(
        model=request.model,
        turns=turns,
        output_bound=request.max_tokens or request.max_completion_tokens or DEFAULT_OUTPUT_BOUND,
        completions=request.n or 1,
        sampling=_sampling(request),
        reasoning=_reasoning(request),
        answer_format=_answer_format(request),
        structured_outputs=None if request.structuredOutputs is UNSET else request.structuredOutputs,
        tools=tuple(map(_tool, request.tools or ())),
        tool_choice=_tool_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        functions=tuple(map(_function, request.functions or ())),
        function_call=_tool_choice(request.function_call),
        web_search_options=request.web_search_options,
        modalities=tuple(request.modalities or ()),
        audio=request.audio,
        prediction=request.prediction,
        verbosity=request.verbosity,
        metadata=request.metadata,
        service_tier=request.service_tier,
        safety_identifier=request.safety_identifier,
        user=request.user,
        cache=CacheHints(
            key=request.prompt_cache_key,
            retention=request.prompt_cache_retention,
            salt=_short_salt(request.cache_salt),
        ),
        images=images,
        options_used=used,
    )


def _short_salt(salt: str | None) -> str | None:
    """The salt, or a digest of one of megabytes, which nobody else shall have to hash on the event loop."""
    if salt is None or len(salt) <= MAX_SALT_LENGTH:
        return salt
    return hashlib.sha256(salt.encode()).hexdigest()


# --- Messages -----------------------------------------------------------------------------------------


def _turns(messages: Sequence[ChatMessage], raw: Sequence[Json], *, remote: bool) -> Iterator[Turn]:
    for index, message in enumerate(messages):
        checkpoint()
        sent = message.content
        yield Turn(
            role=message.role,
            content=_parts(raw[index]["content"], index, remote=remote) if isinstance(sent, list) else sent,
            name=message.name,
            # Two names for one thing. Only one is kept, so what is judged is what is sent.
            reasoning=message.reasoning_content or message.reasoning,
            tool_calls=tuple(map(_tool_call, message.tool_calls)) if message.tool_calls else (),
            function_call=_called_function(None, message.function_call, NOTHING)
            if message.function_call
            else None,
            tool_call_id=message.tool_call_id,
            model_id=None if message.model_id is UNSET else message.model_id,
        )


def _parts(raw: Sequence[Json], index: int, *, remote: bool) -> tuple[Part, ...]:
    # From the body, because its extras are not in the Struct.
    return tuple(
        part
        for part_index, fields in enumerate(raw)
        for part in content.parts_of(fields, f"messages[{index}].content[{part_index}]", remote=remote)
    )


def _tool_call(raw: Json) -> ToolCall:
    identifier, kind = raw.get("id"), raw.get("type", "function")
    if kind != "function" or not isinstance(identifier, str):
        return ToolCall(None, None, extra=raw)
    extra = {name: raw[name] for name in raw if name not in ("id", "type", "function")}
    call = _called_function(identifier, raw.get("function"), extra or NOTHING)
    return ToolCall(None, None, extra=raw) if call.name is None else call


def _called_function(identifier: str | None, function: Any, extra: Json) -> ToolCall:
    # The interface leaves calls free-form. One that is no call is for the backend to refuse.
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments", "")
        if isinstance(name, str) and isinstance(arguments, str):
            return ToolCall(identifier, name, arguments, extra)
        return ToolCall(None, None, extra=function)
    return ToolCall(None, None)


# --- Tools --------------------------------------------------------------------------------------------


def _tool(raw: Json) -> Tool:
    function = raw.get("function")
    if raw.get("type", "function") == "function" and isinstance(function, dict):
        tool = _function(function)
        if tool.name is not None:
            return tool
    return Tool(None, extra=raw)


def _function(raw: Json) -> Tool:
    name, description = raw.get("name"), raw.get("description")
    parameters, strict = raw.get("parameters"), raw.get("strict")
    if (
        isinstance(name, str)
        and isinstance(description, str | None)
        and isinstance(parameters, dict | None)
        and isinstance(strict, bool | None)
    ):
        return Tool(name, description, parameters, strict)
    return Tool(None, extra=raw)


def _tool_choice(raw: Any) -> ToolChoice | None:
    """`{"type": "function", "function": {"name": …}}`, or the legacy `{"name": …}`, or a word."""
    if not isinstance(raw, dict):
        return raw  # type: ignore[no-any-return]
    inner = raw.get("function", raw)
    name = inner.get("name") if isinstance(inner, dict) else None
    if raw.get("type", "function") == "function" and isinstance(name, str):
        return NamedTool(name)
    return raw


# --- Options ------------------------------------------------------------------------------------------


def _sampling(request: ChatCompletionRequest) -> Sampling:
    stop = request.stop
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        logit_bias=request.logit_bias,
        seed=request.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        logprobs=request.logprobs is True,
        top_logprobs=request.top_logprobs,
        prompt_logprobs=request.prompt_logprobs,
    )


def _reasoning(request: ChatCompletionRequest) -> Reasoning:
    # Our choice: The same wish has up to three fields; the object is the most
    # exact one, so it wins.
    options = request.reasoning
    if options is None:
        return Reasoning(
            enabled=request.thinking,
            effort=request.reasoning_effort,
            shown=request.include_reasoning is not False,
        )
    return Reasoning(
        enabled=request.thinking if options.enabled is None else options.enabled,
        effort=options.effort or request.reasoning_effort,
        max_tokens=options.max_tokens,
        shown=request.include_reasoning is not False if options.exclude is None else not options.exclude,
    )


def _answer_format(request: ChatCompletionRequest) -> JsonObject | JsonSchema | None:
    match request.response_format:
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(json_schema=wanted):
            return JsonSchema(wanted.name, wanted.schema, wanted.description, wanted.strict)
        case _:
            return None


# Fields that are options by themselves, with the values that ask for nothing. 0.0 and False compare
# equal; no field here has both a number and a boolean in its type.
_DEFAULTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("temperature", (None,)),
    ("top_p", (None, 1)),
    ("frequency_penalty", (None, 0)),
    ("presence_penalty", (None, 0)),
    ("logit_bias", (None, {})),
    ("n", (None, 1)),
    ("seed", (None,)),
    ("stop", (None, [])),
    ("logprobs", (None, False)),
    ("top_logprobs", (None,)),
    ("prompt_logprobs", (None,)),
    ("structuredOutputs", (UNSET, False)),
    ("tools", (None, [])),
    ("tool_choice", (None, "auto")),
    ("parallel_tool_calls", (None, True)),
    ("functions", (None, [])),
    ("function_call", (None, "auto")),
    ("web_search_options", (None,)),
    ("verbosity", (None, "medium")),
    ("modalities", (None, [], ["text"])),
    ("audio", (None,)),
    ("prediction", (None,)),
    ("service_tier", (None, "auto", "default")),
    ("reasoning_effort", (None, "none")),
)


def _options(request: ChatCompletionRequest) -> Iterator[tuple[str, str]]:
    for field, defaults in _DEFAULTS:
        if getattr(request, field) not in defaults:
            yield field, field
    wanted = request.response_format
    if isinstance(wanted, JsonObjectFormat | JsonSchemaFormat):
        yield ("json_schema" if isinstance(wanted, JsonSchemaFormat) else "json_object"), "response_format"
    for index, tool in enumerate(request.tools or ()):
        if tool.get("type", "function") != "function":
            yield "other_tools", f"tools[{index}]"
            break
    yield from _reasoning_options(request)


def _reasoning_options(request: ChatCompletionRequest) -> Iterator[tuple[str, str]]:
    if request.thinking:
        yield "reasoning", "thinking"
    options = request.reasoning
    if options is not None:
        if options.enabled:
            yield "reasoning", "reasoning.enabled"
        if options.effort not in (None, "none"):
            yield "reasoning_effort", "reasoning.effort"
        if options.max_tokens is not None:
            yield "reasoning_max_tokens", "reasoning.max_tokens"


def _input_options(turns: tuple[Turn, ...]) -> tuple[int, dict[str, str]]:
    images = 0
    used: dict[str, str] = {}
    for index, turn in enumerate(turns):
        if isinstance(turn.content, tuple):
            for part in turn.content:
                images += isinstance(part, ImagePart)
                if option := _input_option(part):
                    used.setdefault(option, f"messages[{index}].content")
    return images, used


def _input_option(part: Part) -> str | None:
    if isinstance(part, ImagePart):
        return "image_input"
    return "other_input" if isinstance(part, OtherPart) else None
