"""
The chat completion and its chunks, as they are sent: these types are also the OpenAPI components.

A message leaves out what it has nothing for. Clients send messages back as they got them, and the
interface refuses `refusal` and `annotations` in a request: one of our own answers, with a null in it,
would be a 400 on the next turn.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from inference.dialects.documentation import StreamedCost
from inference.events import Annotation, FinishReason, TokenLogprob, Usage


class UrlCitation(Struct, forbid_unknown_fields=True):
    url: str
    title: str
    start_index: int
    end_index: int


class UrlCitationAnnotation(Struct, forbid_unknown_fields=True, kw_only=True):
    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation

    @classmethod
    def of(cls, event: Annotation) -> UrlCitationAnnotation:
        return cls(url_citation=UrlCitation(event.url, event.title, event.start, event.end))


class CalledFunction(Struct, forbid_unknown_fields=True):
    name: str
    # JSON text as the model wrote it.
    arguments: str


class MessageToolCall(Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatResponseMessage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None
    refusal: str | None = None
    # Our choice: The interface lists both names. One is sent: clients that know both
    # would show the same thoughts twice. This one is what DeepSeek, vLLM and most clients use.
    reasoning_content: str | None = None
    reasoning: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    function_call: CalledFunction | None = None
    annotations: list[UrlCitationAnnotation] | None = None


class ChoiceLogprobs(Struct, forbid_unknown_fields=True):
    content: list[TokenLogprob] | None = None
    refusal: list[TokenLogprob] | None = None


class ChatChoice(Struct, forbid_unknown_fields=True):
    index: int
    message: ChatResponseMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: FinishReason | None


class ChatUsage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None

    @classmethod
    def of(cls, usage: Usage) -> ChatUsage:
        prompt = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_writes}
        completion = {"reasoning_tokens": usage.reasoning_tokens}
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
            prompt_tokens_details=_without_unreported(prompt),
            completion_tokens_details=_without_unreported(completion),
        )


def _without_unreported(details: dict[str, int | None]) -> dict[str, int] | None:
    return {name: count for name, count in details.items() if count is not None} or None


class ChatCompletion(Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class FunctionDelta(Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`id`, `type` and the name come with the first fragment only: clients join strings."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta | None = None


class ChatDelta(Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: FunctionDelta | None = None
    annotations: list[UrlCitationAnnotation] | None = None


class ChatChunkChoice(Struct, forbid_unknown_fields=True):
    index: int
    delta: ChatDelta
    finish_reason: FinishReason | None
    logprobs: ChoiceLogprobs | None


class ChatCompletionChunk(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The `data` of one record. The last record of a stream is `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: ChatUsage | None = None
    cost: StreamedCost | UnsetType = UNSET
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
