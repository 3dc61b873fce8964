"""
The request for a response, field by field.

These types validate, and they are the OpenAPI components: one source. The interface gives some fields by
name and others by their bounds; the names are those of the OpenAI SDK. What the fields mean is
decided in `responses/parse.py`, what the items of `input` mean in `responses/input_items.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from inference.dialects.chat.request import Effort, FreeForm, OutputBound, Penalty, PolicyId, UpTo64, UpTo512

PATH = "/v1/responses"
Include = Literal[
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
# Refused in words of their own before these types are asked; see `responses/parse.py`.
Unavailable: TypeAlias = Annotated[None, Meta(description="Not available here.")]


class PlainText(Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    pass


class AnyObject(Struct, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    pass


class ObjectOfSchema(Struct, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    schema: FreeForm
    description: Annotated[str, Meta(max_length=2048)] | None = None
    strict: bool | None = None


class TextOptions(Struct, forbid_unknown_fields=True):
    format: PlainText | AnyObject | ObjectOfSchema | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ThinkingOptions(Struct, forbid_unknown_fields=True):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseStreamOptions(Struct, forbid_unknown_fields=True):
    include_obfuscation: bool | None = None


# Unspecified: responses-fields. Those of the SDK that the interface gives a name, a bound or a value for, and
# those that a stateless answer needs. The others are refused, by name.
class ResponseRequest(Struct, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    # Items are told apart by `type`, which the most usual one leaves out; see `responses/input_items.py`.
    input: str | Annotated[list[FreeForm], Meta(min_length=1)]
    instructions: str | None = None
    policy_ids: Annotated[list[PolicyId], Meta(max_length=1000)] = []
    stream: bool | None = None
    max_output_tokens: OutputBound | None = None
    max_tokens: OutputBound | None = None
    max_completion_tokens: OutputBound | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[FreeForm] | None = None
    tool_choice: Literal["none", "auto", "required"] | FreeForm | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ThinkingOptions | None = None
    include: list[Include] | None = None
    truncation: (
        Annotated[
            Literal["auto", "disabled"],
            Meta(description="Nothing is dropped: an input that is too long is refused either way."),
        ]
        | None
    ) = None
    service_tier: ServiceTier | None = None
    stream_options: ResponseStreamOptions | None = None
    metadata: (
        Annotated[dict[str, UpTo512], Meta(max_length=16, description="Names have at most 64 characters.")]
        | None
    ) = None
    user: UpTo512 | None = None
    safety_identifier: UpTo64 | None = None
    prompt_cache_key: UpTo512 | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    store: Annotated[bool, Meta(description="Nothing is stored: only false is accepted.")] | None = None
    background: Annotated[bool, Meta(description="Only false is accepted.")] | None = None
    previous_response_id: Unavailable = None
    conversation: Unavailable = None
    prompt: Unavailable = None
    max_tool_calls: Unavailable = None
    context_management: Unavailable = None
