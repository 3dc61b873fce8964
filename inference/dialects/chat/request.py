"""
The chat completion request, field by field as the interface describes it.

These types validate, and they are the OpenAPI components: one source. `T | None` is "or null" in the
interface, and only there null is the same as leaving the field out. What the fields mean is
decided in `chat/parse.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

PATH = "/v1/chat/completions"
FreeForm: TypeAlias = dict[str, Any]

OutputBound = Annotated[int, Meta(ge=1, le=999_990)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
PolicyId = Annotated[str, Meta(min_length=1, max_length=120)]
UpTo64 = Annotated[str, Meta(max_length=64)]
UpTo512 = Annotated[str, Meta(max_length=512)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultracode"]


class ChatContentPart(Struct):
    """Further properties are allowed, and kept as the body has them."""

    type: str | None = None
    text: str | None = None
    image_url: Any = None


class ChatMessage(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ChatContentPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[FreeForm] | None = None
    function_call: FreeForm | None = None
    model_id: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None


class ReasoningOptions(Struct, forbid_unknown_fields=True):
    enabled: bool | None = None
    effort: Effort | None = None
    max_tokens: OutputBound | None = None
    exclude: bool | None = None


class TextFormat(Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(Struct, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    pass


class JsonSchemaDescription(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    schema: FreeForm
    description: Annotated[str, Meta(max_length=2048)] | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    json_schema: JsonSchemaDescription


class ChatCompletionRequest(Struct, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    policy_ids: Annotated[list[PolicyId], Meta(max_length=1000)] = []
    stream: bool = False
    max_tokens: OutputBound | None = None
    max_completion_tokens: OutputBound | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream_options: StreamOptions | None = None
    thinking: bool | None = None
    reasoning: ReasoningOptions | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    safety_identifier: UpTo64 | None = None
    user: UpTo512 | None = None
    structuredOutputs: bool | UnsetType = UNSET
    tools: list[FreeForm] | None = None
    tool_choice: Literal["none", "auto", "required"] | FreeForm | None = None
    parallel_tool_calls: bool | None = None
    functions: list[FreeForm] | None = None
    function_call: Literal["none", "auto"] | FreeForm | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    modalities: list[str] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    audio: FreeForm | None = None
    prediction: FreeForm | None = None
    metadata: FreeForm | None = None
    store: Annotated[bool, Meta(description="Nothing is stored: only false is accepted.")] = False
    service_tier: str | None = None
    prompt_cache_key: UpTo512 | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    web_search_options: FreeForm | None = None
    cache_salt: str | None = None
