"""Reads the server-sent events of a Messages stream into the gateway's own events."""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec
from msgspec import Struct

from gateway_site.api.errors import BackendFailed
from gateway_site.http_client.failures import failure_of_record
from gateway_site.http_client.sse import ServerSentEvent
from gateway_site.http_client.untrusted_json import decoded
from inference.backends.tool_calls import MAX_CALLS
from inference.backends.usage import Alert, UsageWatch
from inference.events import (
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)


class _Delta(Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Message(Struct, gc=False):
    usage: Any = None


class _MessageEvent(Struct, gc=False):
    """Any event of the stream, and a whole message: their names do not collide."""

    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None
    content: list[_Block] | None = None
    stop_reason: str | None = None


_decode = msgspec.json.Decoder(_MessageEvent).decode

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class MessagesReader:
    """Reads the answer to one request of the Messages API."""

    def __init__(self, *, alert: Alert, credential: str) -> None:
        self.is_done = False
        self._credential = credential
        self._usage = UsageWatch(alert)
        self._usage_fields: dict[str, Any] = {}
        # As reported with the output; the first report is of the input alone.
        self._final_usage: Usage | None = None
        self._has_output = False
        self._is_finished = False
        # Block of the stream -> number of the call, and whether its arguments have begun.
        self._calls: dict[int, int] = {}
        self._begun: set[int] = set()

    def feed(self, record: ServerSentEvent) -> list[Event]:
        if self.is_done:
            return []
        event = decoded(_decode, record.data)
        match event.type:
            case "content_block_delta":
                return self._read_delta(event.index, event.delta)
            case "content_block_start":
                return self._open_block(event.index, event.content_block)
            case "content_block_stop":
                return self._close_block(event.index)
            case "message_start":
                return self._read_first_usage(event.message.usage if event.message else None)
            case "message_delta":
                reason = event.delta.stop_reason if event.delta else None
                return self._finish(reason) + self._read_usage(event.usage)
            case "message_stop":
                self.is_done = True
            case "error":
                raise failure_of_record(event.error, has_output=self._has_output, credential=self._credential)
        return []  # `ping`, and whatever is invented later

    def feed_whole(self, body: bytes) -> list[Event]:
        event = decoded(_decode, body)
        if event.error:
            raise failure_of_record(event.error, has_output=False, credential=self._credential)
        events: list[Event] = []
        for index, block in enumerate(event.content or ()):
            events += self._open_block(index, block) + self._close_block(index)
        events += self._finish(event.stop_reason) + self._read_usage(event.usage)
        self.is_done = True
        return events

    def end(self) -> list[Event]:
        if self._is_finished:
            return []
        # A server that says `message_stop` has said all it will; one that just stops was cut off.
        if not (self.is_done and self._has_output):
            raise BackendFailed
        return self._finish("end_turn") + ([self._final_usage] if self._final_usage else [])

    def _read_delta(self, block: int, delta: _Delta | None) -> list[Event]:
        if delta is None or self._is_finished:
            return []
        if delta.text:
            self._has_output = True
            return [TextDelta(0, delta.text)]
        if delta.thinking:
            self._has_output = True
            return [ReasoningDelta(0, delta.thinking)]
        if delta.partial_json and block in self._calls:
            self._begun.add(block)
            return [ToolCallArguments(0, self._calls[block], delta.partial_json)]
        return []

    def _open_block(self, index: int, block: _Block | None) -> list[Event]:
        if block is None:
            raise BackendFailed
        if block.type != "tool_use":
            return self._read_delta(index, _Delta(text=block.text, thinking=block.thinking))
        if not block.id or not block.name or index in self._calls or len(self._calls) == MAX_CALLS:
            raise BackendFailed
        self._has_output = True
        number = self._calls[index] = len(self._calls)
        events: list[Event] = [ToolCallStart(0, number, block.id, block.name)]
        if block.input:
            self._begun.add(index)
            events.append(ToolCallArguments(0, number, msgspec.json.encode(block.input).decode()))
        return events

    def _close_block(self, index: int) -> list[Event]:
        if index in self._calls and index not in self._begun:
            # A call without arguments streams none; clients parse the text and need an object in it.
            self._begun.add(index)
            return [ToolCallArguments(0, self._calls[index], "{}")]
        return []

    def _finish(self, reason: str | None) -> list[Event]:
        if reason is None or self._is_finished:
            return []
        self._is_finished = True
        return [Finish(0, _REASONS.get(reason, "stop"))]

    def _read_first_usage(self, usage: Any) -> list[Event]:
        """
        Report the input at once, so that it is known of an answer that is cut off as well.

        The first count of output is of a token or two, on top of which what follows would be counted: it is
        left out.
        """
        self._merge_usage(usage)
        self._usage_fields.pop("output_tokens", None)
        # Some servers count nothing until the end, and say so with a zero or with nothing.
        if self._is_finished or not self._input_tokens():
            return []
        believed = self._report(output_tokens=0)
        return [] if believed is None else [believed]

    def _read_usage(self, usage: Any) -> list[Event]:
        if usage is None:
            return []
        self._merge_usage(usage)
        believed = self._report(self._usage_fields.get("output_tokens"))
        if believed is None:
            return []
        self._final_usage = believed
        return [believed]

    def _merge_usage(self, usage: Any) -> None:
        """Keep what was reported: input first, output later; a later figure replaces an earlier one."""
        if isinstance(usage, dict):
            self._usage_fields |= {name: figure for name, figure in usage.items() if figure is not None}

    def _report(self, output_tokens: object) -> Usage | None:
        fields = self._usage_fields
        writes, writes_1h = self._cache_writes()
        searches = fields.get("server_tool_use")
        return self._usage.report(
            self._input_tokens(),
            output_tokens,
            has_output=self._has_output,
            cached_tokens=fields.get("cache_read_input_tokens"),
            cache_write_tokens=writes,
            cache_write_1h_tokens=writes_1h,
            web_searches=searches.get("web_search_requests") if isinstance(searches, dict) else None,
        )

    def _input_tokens(self) -> int | None:
        """All of the input, or None while it is not known in plain counts."""
        fields = self._usage_fields
        # What was read from the cache, and what was written to it, is counted beside the rest.
        inputs = [
            fields.get("input_tokens"),
            fields.get("cache_read_input_tokens", 0),
            fields.get("cache_creation_input_tokens", 0),
        ]
        return sum(inputs) if all(map(_is_count, inputs)) else None

    def _cache_writes(self) -> tuple[object, int | None]:
        """Tokens written to the cache for five minutes, and for an hour if that is told apart."""
        written = self._usage_fields.get("cache_creation_input_tokens")
        by_lifetime = self._usage_fields.get("cache_creation")
        hour = by_lifetime.get("ephemeral_1h_input_tokens") if isinstance(by_lifetime, dict) else None
        if not _is_count(hour) or not _is_count(written):
            return written, None
        if hour > written:
            self._usage.warn("a detail does not fit its whole")
        return max(0, written - hour), min(hour, written)


def _is_count(figure: object) -> TypeGuard[int]:
    return type(figure) is int and figure >= 0
