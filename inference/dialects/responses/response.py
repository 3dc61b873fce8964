"""
The response as it is sent. Also the OpenAPI component.

The interface gives id, status, model, output, object and usage. The other fields are those without which the
OpenAI SDK, told to be strict, does not take it for a response.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from inference.dialects.chat.request import FreeForm
from inference.dialects.documentation import StreamedCost
from inference.events import Usage

# Unspecified: response-status. Those of the SDK that a response has which nobody waits for in the background;
# `in_progress` is said in streams only.
Status = Literal["completed", "incomplete", "failed", "in_progress"]
IncompleteReason = Literal["max_output_tokens", "content_filter"]


class InputTokensDetails(Struct, forbid_unknown_fields=True):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Struct, forbid_unknown_fields=True):
    reasoning_tokens: int


class ResponseUsage(Struct, forbid_unknown_fields=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> ResponseUsage:
        # The SDK wants every detail, so what was not reported is 0 here; the sums are as reported.
        return cls(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputTokensDetails(usage.cached_tokens or 0, usage.cache_writes or 0),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokensDetails(usage.reasoning_tokens or 0),
            total_tokens=usage.total_tokens,
        )


class ResponseEvent(Struct):
    """One typed event of a stream. What it tells beside its number depends on its type."""

    type: str
    sequence_number: int


class ResponseFailure(Struct, forbid_unknown_fields=True):
    code: str
    message: str


class IncompleteDetails(Struct, forbid_unknown_fields=True):
    reason: IncompleteReason


class ResponseObject(Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: list[FreeForm]
    usage: ResponseUsage | None
    cost: StreamedCost | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET
    # What was asked for.
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float
    tool_choice: Any
    tools: list[FreeForm]
    top_p: float
    max_output_tokens: int | UnsetType = UNSET
    text: FreeForm | UnsetType = UNSET
    reasoning: FreeForm | UnsetType = UNSET
    truncation: str | UnsetType = UNSET
    top_logprobs: int | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    safety_identifier: str | UnsetType = UNSET
    prompt_cache_key: str | UnsetType = UNSET
    prompt_cache_retention: str | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    background: bool | UnsetType = UNSET
