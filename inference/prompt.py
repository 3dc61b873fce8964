"""
A generation request in no dialect: the `Prompt` that a dialect reads and a backend is given.

Nothing here knows a wire format: the words are those of chat completions only where every dialect has the
thing and some name was needed. What comes back is in `inference.events`.

Everything is frozen: a request is passed along, and nobody can change what an earlier step has judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
Json: TypeAlias = Mapping[str, Any]

DEFAULT_OUTPUT_BOUND = 1024
NOTHING: Json = {}


class TextPart(Struct, frozen=True):
    text: str
    # What else the client put beside it, e.g. `cache_control`. Only a backend that knows the key sends it.
    extra: Json = NOTHING


class ImagePart(Struct, frozen=True):
    """An image at a `data:` address, or at one of http(s) where backends may fetch it. We never do."""

    url: str
    detail: str | None = None
    extra: Json = NOTHING


class OtherPart(Struct, frozen=True):
    """Audio, a file or an earlier refusal, as the client wrote it, `type` included."""

    type: str
    fields: Json


Part: TypeAlias = TextPart | ImagePart | OtherPart


class ToolCall(Struct, frozen=True):
    """
    A call made earlier in the conversation. `arguments` is JSON text, as models write it: perhaps not valid.

    `name` is None for what is not a call of a function; then `extra` is the whole object.
    """

    id: str | None
    name: str | None
    arguments: str = ""
    extra: Json = NOTHING


class Turn(Struct, frozen=True, kw_only=True):
    """One message of the conversation, of whatever role."""

    role: Role
    content: str | tuple[Part, ...] | None = None
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    # Legacy: the assistant's single call, `id` always None.
    function_call: ToolCall | None = None
    # Which call this turn (of role `tool`) answers.
    tool_call_id: str | None = None
    # Which model wrote this, where a conversation went through several.
    model_id: str | None = None


class Tool(Struct, frozen=True):
    """
    A function that the model may call. `parameters` is a JSON schema.

    `name` is None for what is not a function; then `extra` is the whole object.
    """

    name: str | None
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None
    extra: Json = NOTHING


class NamedTool(Struct, frozen=True):
    """The choice of one tool (or legacy function), which must be called."""

    name: str


# A mapping is a choice in the client's own words, e.g. of `allowed_tools`.
ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedTool | Json


class JsonObject(Struct, frozen=True):
    """A format of the answer: some JSON object."""


class JsonSchema(Struct, frozen=True):
    """A format of the answer: an instance of `schema`."""

    name: str
    schema: Json
    description: str | None = None
    strict: bool | None = None


class Sampling(Struct, frozen=True, kw_only=True):
    """How tokens are chosen. None is what the client left to the backend; no default is filled in here."""

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Mapping[str, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None


class Reasoning(Struct, frozen=True, kw_only=True):
    enabled: bool | None = None
    effort: str | None = None
    # Inside the output bound, not on top of it.
    max_tokens: int | None = None
    # Whether the client wants to read it. Backends yield it all the same (it is paid for and judged
    # like the rest); the dialect leaves it out when False.
    shown: bool = True


class CacheHints(Struct, frozen=True, kw_only=True):
    """
    Hints for prompt caches, as the client sent them.

    `inference.serving.affinity` isolates `key` and `salt` to a project before they go out.
    """

    key: str | None = None
    retention: str | None = None
    salt: str | None = None


class Prompt(Struct, frozen=True, kw_only=True):
    """One request for `completions` answers, in no dialect."""

    # The catalog id that the client named. The id upstream is an argument of Backend.generate.
    model: str
    turns: tuple[Turn, ...]
    # For each completion. Admission lowers it to the model's maximum.
    output_bound: int = DEFAULT_OUTPUT_BOUND
    completions: int = 1
    sampling: Sampling = Sampling()
    reasoning: Reasoning = Reasoning()
    answer_format: JsonObject | JsonSchema | None = None
    structured_outputs: bool | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: tuple[Tool, ...] = ()
    function_call: ToolChoice | None = None
    web_search_options: Json | None = None
    modalities: tuple[str, ...] = ()
    audio: Json | None = None
    prediction: Json | None = None
    verbosity: str | None = None
    metadata: Json | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    cache: CacheHints = CacheHints()
    # For the price and the hold.
    images: int = 0
    # The optional features that the request really uses (null or a default uses none), by their names in
    # `Option`, with the request field that asked, for the error: {"json_schema": "response_format"}.
    options_used: Mapping[str, str] = NOTHING

    @property
    def may_have_side_effects(self) -> bool:
        """Whether the backend would act: search, or use a tool of its own. Functions are the client's."""
        return self.web_search_options is not None or any(tool.name is None for tool in self.tools)


# What a backend can lack, by chat's names where it has one. Hints that may be ignored are not options.
Option = Literal[
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "n",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "json_object",
    "json_schema",
    "structuredOutputs",
    "tools",
    "other_tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "web_search_options",
    "reasoning",
    "reasoning_effort",
    "reasoning_max_tokens",
    "verbosity",
    "modalities",
    "audio",
    "prediction",
    "service_tier",
    "image_input",
    "other_input",
]
