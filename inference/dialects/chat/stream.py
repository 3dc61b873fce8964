"""
Writing the events of an answer as the records of a chat stream.

What the SDKs' accumulators need, and what they do otherwise:

- the role once for each choice, in its first chunk (Python joins repeated roles to "assistantassistant",
  Node refuses a choice without one);
- choices that first appear in the order 0, 1, 2 (Python: IndexError);
- no logprobs in a choice's first chunk (Python takes them twice, unless it is the stream's first);
- id and name of a tool call once, in its first fragment (joined too);
- all annotations of a choice in one chunk (Python: RuntimeError on the second list without indexes);
- a finish for every choice, the usage record after all of them, and `[DONE]`; after a failure none of these.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway_site.api import envelope
from gateway_site.api.errors import ApiError
from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.request import PATH
from inference.dialects.chat.response import ChatUsage, ChoiceLogprobs, UrlCitationAnnotation
from inference.dialects.sse import escape_line_breaks
from inference.events import (
    Annotation,
    Event,
    Finish,
    FunctionCallArguments,
    FunctionCallStart,
    Logprobs,
    PromptLogprobs,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
    WebSearch,
)

# Unspecified: stream-events. As the SDKs of chat completions read them, above.
DONE = b"data: [DONE]\n\n"
OPENING: dict[str, Any] = {"role": "assistant", "content": None}

_encode = msgspec.json.Encoder().encode


class ChatStream:
    """The chunks of one chat completion, as server-sent events."""

    def __init__(self, info: CompletionInfo) -> None:
        self._show_reasoning = info.show_reasoning
        self._include_usage = info.include_usage
        # Everything but the delta is the same in each chunk, so it is written once.
        self._start = b"data: " + escape_line_breaks(_encode(_shared(info)))[:-1] + b',"choices":['
        self._after = b"}]" + (b',"usage":null' if info.include_usage else b"") + b"}\n\n"
        self._after_text = b'},"finish_reason":null,"logprobs":null' + self._after
        # By choice, and only once its role is out: a choice that is here needs nothing but its text.
        self._before_text: dict[int, bytes] = {}
        self._opened_choices = 0
        self._has_content: set[int] = set()
        self._annotations: dict[int, list[Annotation]] = {}
        self._usage: Usage | None = None

    def write(self, event: Event) -> bytes:
        """Encode an event as records; none for what waits or is not shown."""
        if type(event) is TextDelta and event.logprobs is None:
            before = self._before_text.get(event.index)
            if before is not None:
                text = event.text
                encoded = _encode(text)
                if not text.isascii():
                    encoded = escape_line_breaks(encoded)
                return before + encoded + self._after_text if text else b""
        return self._write_slowly(event)

    def end(self, cost_usd: str | None = None, /) -> bytes:
        """Encode the usage record, with the cost if that is given, where it was asked for; and `[DONE]`."""
        if not self._include_usage or self._usage is None:
            return DONE
        cost = b"" if cost_usd is None else b',"cost":' + _encode(cost_usd)
        return self._start + b'],"usage":' + _encode(ChatUsage.of(self._usage)) + cost + b"}\n\n" + DONE

    def fail(self, error: ApiError) -> bytes:
        """
        Encode the record that ends a stream which was under way when `error` came.

        Under `error` and without an `event:` line, or the Python SDK would take it for a chunk. No `[DONE]`
        follows: a client that skips what has no choices would take the part that it has for a whole answer.
        """
        return b"data: " + escape_line_breaks(_encode(envelope.body_of(error, path=PATH))) + b"\n\n"

    def _write_slowly(self, event: Event) -> bytes:
        match event:
            case TextDelta(index, text, logprobs):
                record = self._chunk(index, {"content": text}, _content_logprobs(logprobs))
                self._before_text[index] = self._start + (b'{"index":%d,"delta":{"content":' % index)
                return record
            case RefusalDelta(index, text, logprobs) if text or logprobs:
                return self._chunk(index, {"refusal": text} if text else {}, _refusal_logprobs(logprobs))
            case ReasoningDelta(index, text) if text and self._show_reasoning:
                return self._chunk(index, {"reasoning_content": text})
            case RefusalDelta() | ReasoningDelta() | WebSearch():  # chunks have no field for a search
                return b""
            case Finish(index, reason):
                return self._finish(index, reason)
            case Usage():
                self._usage = event
                return b""
            case Annotation():
                self._annotations.setdefault(event.index, []).append(event)
                return b""
            case PromptLogprobs(entries=entries):
                encoded = escape_line_breaks(_encode(entries))
                return self._chunk(0, {}).replace(b"}\n\n", b',"prompt_logprobs":' + encoded + b"}\n\n")
            case _:
                return self._write_call(event)

    def _write_call(self, event: Event) -> bytes:
        match event:
            case ToolCallStart(index, call, identifier, name, arguments):
                function = {"name": name, "arguments": arguments}
                fragment = {"index": call, "id": identifier, "type": "function", "function": function}
                return self._chunk(index, {"tool_calls": [fragment]})
            case ToolCallArguments(index, call, text):
                fragment = {"index": call, "function": {"arguments": text}}
                return self._chunk(index, {"tool_calls": [fragment]})
            case FunctionCallStart(index, name, arguments):
                return self._chunk(index, {"function_call": {"name": name, "arguments": arguments}})
            case FunctionCallArguments(index, text):
                return self._chunk(index, {"function_call": {"arguments": text}})
        raise TypeError(f"{type(event).__name__} is not an event that chat can write")

    def _finish(self, index: int, reason: str) -> bytes:
        cited = self._annotations.pop(index, None)
        before = b""
        if cited:
            before = self._chunk(index, {"annotations": [UrlCitationAnnotation.of(event) for event in cited]})
        delta = {} if index in self._has_content else {"content": ""}
        return before + self._chunk(index, delta, finish=reason)

    def _chunk(
        self, index: int, delta: dict[str, Any], logprobs: Any = None, finish: str | None = None
    ) -> bytes:
        earlier = b""
        if delta:
            self._has_content.add(index)
        if index >= self._opened_choices:
            end = index if logprobs is None else index + 1
            for unopened in range(self._opened_choices, end):
                earlier += self._record(unopened, OPENING, None, None)
            self._opened_choices = index + 1
            delta = {**OPENING, **delta} if logprobs is None else delta
        return earlier + self._record(index, delta, logprobs, finish)

    def _record(self, index: int, delta: dict[str, Any], logprobs: Any, finish: str | None) -> bytes:
        return (
            self._start
            + (b'{"index":%d,"delta":' % index)
            + escape_line_breaks(_encode(delta))
            + b',"finish_reason":'
            + _encode(finish)
            + b',"logprobs":'
            + escape_line_breaks(_encode(logprobs))
            + self._after
        )


def _shared(info: CompletionInfo) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "id": info.id,
        "object": "chat.completion.chunk",
        "created": info.created,
        "model": info.model,
    }
    if info.system_fingerprint is not None:
        shared["system_fingerprint"] = info.system_fingerprint
    if info.service_tier is not None:
        shared["service_tier"] = info.service_tier
    return shared


def _content_logprobs(logprobs: Logprobs | None) -> ChoiceLogprobs | None:
    return ChoiceLogprobs(content=list(logprobs)) if logprobs else None


def _refusal_logprobs(logprobs: Logprobs | None) -> ChoiceLogprobs | None:
    return ChoiceLogprobs(refusal=list(logprobs)) if logprobs else None
