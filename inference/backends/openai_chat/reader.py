"""
Reads chat completion chunks into events.

Typed decoding of the few fields that matter: a chunk is read some ten thousand times a second, and
everything that is not named in these structs is skipped without becoming a Python object.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway_site.api.errors import BackendFailed
from gateway_site.http_client.failures import failure_of_record
from gateway_site.http_client.sse import ServerSentEvent
from gateway_site.http_client.untrusted_json import decoded
from inference.backends.tool_calls import MAX_CALLS, ToolCalls
from inference.backends.usage import Alert, UsageWatch
from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    FunctionCallArguments,
    FunctionCallStart,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    TopLogprob,
    Usage,
)

# JSON has no -Infinity; this is what clients know for it.
LOWEST_LOGPROB: Final = -9999.0
# Most parts of each completion in one chunk. Servers send one.
MAX_PARTS: Final = 16


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolFragment(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Top(Struct, gc=False):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Token(_Top, gc=False):
    top_logprobs: list[_Top] | None = None


class _ChunkLogprobs(Struct, gc=False):
    content: list[_Token] | None = None
    refusal: list[_Token] | None = None


class _Citation(Struct, gc=False):
    url: str
    title: str = ""
    start_index: int = 0
    end_index: int = 0


class _Annotation(Struct, gc=False):
    url_citation: _Citation | None = None


class _ChatMessage(Struct, gc=False):
    """A delta of a stream, or the message of a whole answer: both have the same names."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolFragment] | None = None
    function_call: _Function | None = None
    annotations: list[_Annotation] | None = None


class _ChunkChoice(Struct, gc=False):
    index: int = 0
    delta: _ChatMessage | None = None
    message: _ChatMessage | None = None
    finish_reason: str | None = None
    logprobs: _ChunkLogprobs | None = None


class _Chunk(Struct, gc=False):
    choices: list[_ChunkChoice] | None = None
    usage: Any = None
    error: Any = None
    # Older vLLM puts an error's fields at the top, under `"object": "error"`.
    object: Any = None
    message: Any = None
    code: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}


def _only_text(chunk: _Chunk, completions: int) -> TextDelta | None:
    """The text of a chunk that holds one choice's text and nothing else. Nearly every chunk does."""
    choices = chunk.choices
    if choices is None or len(choices) != 1 or chunk.usage is not None or chunk.error is not None:
        return None
    choice = choices[0]
    delta = choice.delta
    if (
        delta is None
        or not delta.content
        or choice.finish_reason is not None
        or choice.logprobs is not None
        or delta.tool_calls is not None
        or delta.reasoning is not None
        or delta.reasoning_content is not None
        or delta.refusal is not None
        or delta.function_call is not None
        or delta.annotations is not None
        or chunk.object == "error"
        or not 0 <= choice.index < completions
    ):
        return None
    return TextDelta(choice.index, delta.content)


class ChatReader:
    """Reads the answer to one chat completion request with `completions` choices."""

    def __init__(self, *, completions: int, alert: Alert, credential: str) -> None:
        self.is_done = False
        self._completions = completions
        self._credential = credential
        self._usage = UsageWatch(alert)
        # Whether the latest usage covers all of the output, and whether it was yielded after it.
        self._is_usage_current = False
        self._is_usage_last = False
        self._with_output: set[int] = set()
        self._finished: set[int] = set()
        self._calls: dict[int, ToolCalls] = {}
        self._functions: set[int] = set()

    def feed(self, record: ServerSentEvent) -> list[Event]:
        if self.is_done:
            return []
        if record.data.startswith(b"[DONE]"):
            self.is_done = True
            return []
        chunk = decoded(_decode, record.data)
        text = _only_text(chunk, self._completions)
        if text is None or text.index in self._finished:
            return self._events(chunk)
        self._with_output.add(text.index)
        self._is_usage_current = False
        return [text]

    def feed_whole(self, body: bytes) -> list[Event]:
        events = self._events(decoded(_decode, body))
        self.is_done = True
        return events

    def end(self) -> list[Event]:
        unfinished = [index for index in range(self._completions) if index not in self._finished]
        # A server that sends [DONE] has sent all it will; one that just stops was cut off.
        if unfinished and not (self.is_done and self._with_output.issuperset(unfinished)):
            raise BackendFailed
        events: list[Event] = []
        for index in unfinished:
            self._finish(index, "stop", events)
        if self._usage.latest is not None and self._is_usage_current and not self._is_usage_last:
            events.append(self._usage.latest)
        return events

    def _events(self, chunk: _Chunk) -> list[Event]:
        events: list[Event] = []
        if chunk.error or chunk.object == "error":
            error = chunk.error or {"message": chunk.message, "code": chunk.code}
            raise failure_of_record(error, has_output=bool(self._with_output), credential=self._credential)
        choices = chunk.choices or ()
        if len(choices) > MAX_PARTS * self._completions:
            raise BackendFailed
        for choice in choices:
            self._read(choice, events)
        if chunk.usage is not None:
            usage = self._read_usage(chunk.usage)
            if usage is not None:
                events.append(usage)
                self._is_usage_current = self._is_usage_last = True
        return events

    def _read(self, choice: _ChunkChoice, events: list[Event]) -> None:
        index = choice.index
        if not 0 <= index < self._completions:
            raise BackendFailed
        if index in self._finished:
            return
        message = choice.delta or choice.message
        if message is not None:
            before = len(events)
            self._read_message(index, message, choice.logprobs, events)
            if len(events) > before:
                self._with_output.add(index)
                self._is_usage_current = False
        if choice.finish_reason:
            self._finish(index, choice.finish_reason, events)

    def _read_message(
        self, index: int, message: _ChatMessage, logprobs: _ChunkLogprobs | None, events: list[Event]
    ) -> None:
        reasoning = message.reasoning or message.reasoning_content
        if reasoning:
            # Also what the client did not ask to see: it is paid for and judged, and hidden when written.
            events.append(ReasoningDelta(index, reasoning))
        if logprobs is None:
            if message.content:
                events.append(TextDelta(index, message.content))
            if message.refusal:
                events.append(RefusalDelta(index, message.refusal))
        else:
            _read_with_logprobs(index, message, logprobs, events)
        if message.tool_calls:
            self._read_calls(index, message.tool_calls, events)
        elif message.function_call is not None:
            self._read_function(index, message.function_call, events)
        if message.annotations:
            events.extend(_annotations(index, message.annotations))

    def _read_calls(self, index: int, fragments: list[_ToolFragment], events: list[Event]) -> None:
        if len(fragments) > MAX_CALLS:
            raise BackendFailed
        calls = self._calls.get(index)
        if calls is None:
            calls = self._calls[index] = ToolCalls(index)
        for fragment in fragments:
            function = fragment.function or _Function()
            arguments = _arguments(function.arguments)
            events += calls.read(fragment.index, fragment.id, function.name, arguments)

    def _read_function(self, index: int, function: _Function, events: list[Event]) -> None:
        if function.name and index not in self._functions:
            self._functions.add(index)
            events.append(FunctionCallStart(index, function.name))
        if (arguments := _arguments(function.arguments)) and index in self._functions:
            events.append(FunctionCallArguments(index, arguments))

    def _finish(self, index: int, finish_reason: str, events: list[Event]) -> None:
        reason = _REASONS.get(finish_reason, "stop")
        if index in self._calls:
            self._calls[index].finish()
            # Some servers say "stop" after a call; clients look for the other word to run their tools.
            if reason == "stop":
                reason = "tool_calls"
        self._finished.add(index)
        self._is_usage_last = False
        events.append(Finish(index, reason))

    def _read_usage(self, usage: Any) -> Usage | None:
        if not isinstance(usage, dict):
            self._usage.warn("not an object")
            return None
        prompt_details = _details(usage.get("prompt_tokens_details"))
        completion_details = _details(usage.get("completion_tokens_details"))
        return self._usage.report(
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            total_tokens=usage.get("total_tokens"),
            has_output=bool(self._with_output),
            cached_tokens=prompt_details.get("cached_tokens"),
            cache_write_tokens=_first(prompt_details, "cache_write_tokens", "cache_creation_tokens"),
            audio_input_tokens=prompt_details.get("audio_tokens"),
            reasoning_tokens=completion_details.get("reasoning_tokens"),
            audio_output_tokens=completion_details.get("audio_tokens"),
        )


def _details(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(details: dict[str, Any], *names: str) -> Any:
    """The first of these figures that is there: servers have different names for one."""
    return next((details[name] for name in names if details.get(name) is not None), None)


def _arguments(value: Any) -> str:
    """Arguments are JSON text; a server that sends the object itself means the same."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _read_with_logprobs(
    index: int, message: _ChatMessage, logprobs: _ChunkLogprobs, events: list[Event]
) -> None:
    """Text with its logprobs. A token may have a logprob and no text yet, as half a character has."""
    if message.content or logprobs.content:
        events.append(TextDelta(index, message.content or "", _logprobs(logprobs.content)))
    if message.refusal or logprobs.refusal:
        events.append(RefusalDelta(index, message.refusal or "", _logprobs(logprobs.refusal)))


def _logprobs(tokens: list[_Token] | None) -> Logprobs | None:
    if tokens is None:
        return None
    return tuple(
        TokenLogprob(
            token.token,
            max(token.logprob, LOWEST_LOGPROB),
            None if token.bytes is None else tuple(token.bytes),
            tuple(
                TopLogprob(
                    top.token,
                    max(top.logprob, LOWEST_LOGPROB),
                    None if top.bytes is None else tuple(top.bytes),
                )
                for top in token.top_logprobs or ()
            ),
        )
        for token in tokens
    )


def _annotations(index: int, annotations: list[_Annotation]) -> list[Annotation]:
    return [
        Annotation(index, cited.url, cited.title, max(cited.start_index, 0), max(cited.end_index, 0))
        for annotation in annotations
        if (cited := annotation.url_citation) is not None
    ]
