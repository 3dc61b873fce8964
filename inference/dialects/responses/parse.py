"""Reading a request for a response: bytes in, a neutral Prompt and what the answer repeats of it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Raw, json, to_builtins

from gateway_site.api.errors import InvalidRequest
from inference.dialects import body, bounds
from inference.dialects.addresses import refuse_remote_references
from inference.dialects.base import ParsedRequest
from inference.dialects.responses.input_items import Unseal, turns_of
from inference.dialects.responses.request import AnyObject, ObjectOfSchema, ResponseRequest
from inference.dialects.responses.tools import Toolbox, choice_of, toolbox_of
from inference.prompt import (
    DEFAULT_OUTPUT_BOUND,
    CacheHints,
    ImagePart,
    Json,
    JsonObject,
    JsonSchema,
    OtherPart,
    Prompt,
    Reasoning,
    Sampling,
    Turn,
)

BOUNDS = ("max_output_tokens", "max_tokens", "max_completion_tokens")
MAX_METADATA_NAME = 64
# What a service that keeps nothing cannot do, and why.
_UNAVAILABLE = {
    "store": "Nothing is stored here: only false is accepted.",
    "background": "Nothing runs in the background here: only false is accepted.",
    "previous_response_id": "No response is stored here: send the conversation in `input`.",
    "conversation": "No conversation is stored here: send it in `input`.",
    "prompt": "No prompt is stored here: send it in `instructions` and `input`.",
    "max_tool_calls": "The number of searches cannot be bounded here.",
    "context_management": "The input is never shortened here.",
}


class ParsedResponseRequest(ParsedRequest, frozen=True):
    """A request for a response, read and checked."""

    # The fields of the answer that say what was asked.
    echo: Json
    summarizes: bool
    seals: bool


def parse(raw: bytes, *, unseal: Unseal, remote_images: bool = False) -> ParsedResponseRequest:
    """
    Read a request body, or raise InvalidRequest naming the field at fault.

    Pure and without I/O, so a caller can move a large body off the event loop.
    """
    value = body.loads(raw)
    _refuse_unavailable(value)
    request = body.convert(value, ResponseRequest)
    _refuse_long_names(request)
    _require_bounds(request)
    _refuse_remote_schemas(request)
    bound = _output_bound(request)
    toolbox = toolbox_of(request.tools or [], may_use=request.tool_choice != "none")
    turns = _turns(request, unseal, remote=remote_images)
    include = request.include or []
    return ParsedResponseRequest(
        prompt=_prompt(request, turns, toolbox, bound),
        policy_ids=tuple(request.policy_ids),
        stream=request.stream is True,
        echo=_echo(request),
        summarizes=_asks_for_summary(request),
        seals="reasoning.encrypted_content" in include,
    )


def _refuse_unavailable(value: Any) -> None:
    for name, reason in _UNAVAILABLE.items():
        # Compared by identity, because 0 equals False, and the types shall refuse that.
        if isinstance(value, dict) and (sent := value.get(name)) is not None and sent is not False:
            raise InvalidRequest(reason, param=name)


def _refuse_long_names(request: ResponseRequest) -> None:
    if any(len(name) > MAX_METADATA_NAME for name in request.metadata or ()):
        raise InvalidRequest(
            f"A name in metadata has at most {MAX_METADATA_NAME} characters.", param="metadata"
        )


def _require_bounds(request: ResponseRequest) -> None:
    if isinstance(request.input, list):
        bounds.require_few_messages(request.input, "input")
        for name in ("content", "output"):
            bounds.require_few_parts((item.get(name) for item in request.input), "input")
    bounds.require_few_tools(request.tools, "tools")


def _refuse_remote_schemas(request: ResponseRequest) -> None:
    if request.text is not None and isinstance(request.text.format, ObjectOfSchema):
        refuse_remote_references(request.text.format.schema, "text.format.schema")
    for index, tool in enumerate(request.tools or ()):
        refuse_remote_references(tool, f"tools[{index}]")


def _output_bound(request: ResponseRequest) -> int:
    sent = [name for name in BOUNDS if getattr(request, name) is not None]
    if len(sent) > 1:
        raise InvalidRequest(f"Send exactly one of {', '.join(BOUNDS)}.", param=sent[1])
    return getattr(request, sent[0]) if sent else DEFAULT_OUTPUT_BOUND


def _turns(request: ResponseRequest, unseal: Unseal, *, remote: bool) -> tuple[Turn, ...]:
    if isinstance(request.input, str):
        turns = [Turn(role="user", content=request.input)]
    else:
        turns = list(turns_of(request.input, unseal, remote=remote))
    if not turns:
        raise InvalidRequest("There is nothing to respond to.", param="input")
    if request.instructions is not None:
        turns.insert(0, Turn(role="system", content=request.instructions))
    return tuple(turns)


def _prompt(request: ResponseRequest, turns: tuple[Turn, ...], toolbox: Toolbox, bound: int) -> Prompt:
    images, used = _input_options(turns)
    used.update(_options(request))
    used.update(toolbox.used)
    choice = choice_of(request.tool_choice, toolbox)
    if choice not in (None, "auto"):
        used["tool_choice"] = "tool_choice"
    return Prompt(
        model=request.model,
        turns=turns,
        output_bound=bound,
        sampling=_sampling(request),
        reasoning=Reasoning(effort=None if request.reasoning is None else request.reasoning.effort),
        answer_format=_answer_format(request),
        tools=toolbox.functions,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
        web_search_options=toolbox.web_search,
        verbosity=None if request.text is None else request.text.verbosity,
        metadata=request.metadata,
        service_tier=request.service_tier,
        safety_identifier=request.safety_identifier,
        user=request.user,
        cache=CacheHints(key=request.prompt_cache_key, retention=request.prompt_cache_retention),
        images=images,
        options_used=used,
    )


def _wants_logprobs(request: ResponseRequest) -> bool:
    return "message.output_text.logprobs" in (request.include or ())


def _asks_for_summary(request: ResponseRequest) -> bool:
    options = request.reasoning
    return options is not None and (options.summary or options.generate_summary) is not None


def _sampling(request: ResponseRequest) -> Sampling:
    wants_logprobs = _wants_logprobs(request)
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        logprobs=wants_logprobs,
        top_logprobs=request.top_logprobs if wants_logprobs else None,
    )


def _answer_format(request: ResponseRequest) -> JsonObject | JsonSchema | None:
    match request.text.format if request.text is not None else None:
        case AnyObject():
            return JsonObject()
        case ObjectOfSchema() as wanted:
            return JsonSchema(wanted.name, wanted.schema, wanted.description, wanted.strict)
        case _:
            return None


# --- What it uses -------------------------------------------------------------------------------------

# Fields that are options by themselves, with the values that ask for nothing.
_DEFAULTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("temperature", (None,)),
    ("top_p", (None, 1)),
    ("frequency_penalty", (None, 0)),
    ("presence_penalty", (None, 0)),
    ("parallel_tool_calls", (None, True)),
    ("service_tier", (None, "auto", "default")),
)


def _options(request: ResponseRequest) -> Iterator[tuple[str, str]]:
    for field, defaults in _DEFAULTS:
        if getattr(request, field) not in defaults:
            yield field, field
    if _wants_logprobs(request):
        yield "logprobs", "include"
        if request.top_logprobs:
            yield "top_logprobs", "top_logprobs"
    if request.reasoning is not None and request.reasoning.effort not in (None, "none"):
        yield "reasoning_effort", "reasoning.effort"
    if request.text is not None:
        if request.text.verbosity not in (None, "medium"):
            yield "verbosity", "text.verbosity"
        if isinstance(request.text.format, AnyObject | ObjectOfSchema):
            is_any = isinstance(request.text.format, AnyObject)
            yield "json_object" if is_any else "json_schema", "text.format"


def _input_options(turns: tuple[Turn, ...]) -> tuple[int, dict[str, str]]:
    images = 0
    used: dict[str, str] = {}
    for turn in turns:
        for part in turn.content if isinstance(turn.content, tuple) else ():
            if isinstance(part, ImagePart):
                images += 1
                used["image_input"] = "input"
            elif isinstance(part, OtherPart):
                used["other_input"] = "input"
    return images, used


# --- What the answer repeats --------------------------------------------------------------------------

_ECHO_DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}
_ECHOED_IF_SENT = (
    "max_output_tokens",
    "text",
    "reasoning",
    "truncation",
    "top_logprobs",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "store",
    "background",
)

# Fields without a bound, which an answer repeats several times. Long ones are written once, where the request
# is read, so that the event loop has but to copy them.
_UNBOUNDED_ECHO = ("instructions", "tools", "tool_choice", "text")
MAX_ECHO_WRITTEN_ANEW = 16 * 1024


def _echo(request: ResponseRequest) -> Json:
    always = {name: value for name in _ECHO_DEFAULTS if (value := getattr(request, name)) is not None}
    sent = {name: value for name in _ECHOED_IF_SENT if (value := getattr(request, name)) is not None}
    for name in ("text", "reasoning"):
        if name in sent:
            sent[name] = _without_nulls(to_builtins(sent[name]))
    echo = {**_ECHO_DEFAULTS, **always, **sent}
    for name in _UNBOUNDED_ECHO:
        if echo.get(name) and len(written := json.encode(echo[name])) > MAX_ECHO_WRITTEN_ANEW:
            echo[name] = Raw(written)
    return echo


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    # One level deep and in `format`; a schema keeps its nulls, which mean something there.
    kept = {name: inner for name, inner in value.items() if inner is not None}
    if isinstance(kept.get("format"), dict):
        kept["format"] = {name: inner for name, inner in kept["format"].items() if inner is not None}
    return kept
