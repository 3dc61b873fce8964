"""
Reads the typed events of a Responses stream into the gateway's own events.

Servers that imitate the API leave out `output_index`, or the deltas, or say `completed` of an answer that
was cut. So items are known by either of their names, and what did not come piece by piece is sent on
when its item is done.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway_site.api.errors import BackendFailed
from gateway_site.http_client.failures import failure_of_record
from gateway_site.http_client.sse import ServerSentEvent
from gateway_site.http_client.untrusted_json import decoded
from inference.backends.tool_calls import MAX_CALLS
from inference.backends.usage import Alert, UsageWatch
from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
    WebSearch,
)


class _ResponseEvent(Struct, gc=False):
    """Any event of the stream, and a whole response: their names do not collide."""

    type: str = ""
    # Any: unknown types of event may use these names for something else.
    delta: Any = None
    item: Any = None
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    annotation: Any = None
    response: Any = None
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None
    status: Any = None
    incomplete_details: Any = None
    output: Any = None
    usage: Any = None


class _Item:
    """What we must remember of one item of the output."""

    __slots__ = ("call", "has_arguments", "has_text", "is_search_sent", "offset", "part")

    def __init__(self) -> None:
        # The number of the call, where it is one.
        self.call: int | None = None
        self.has_arguments = False
        self.has_text = False
        self.is_search_sent = False
        # Which part is being written, and how much text of the answer came before it.
        self.part: Any = None
        self.offset = 0


_decode = msgspec.json.Decoder(_ResponseEvent).decode

_DELTAS: Final[dict[str, Callable[[int, str], Event]]] = {
    "response.output_text.delta": TextDelta,
    "response.refusal.delta": RefusalDelta,
    "response.reasoning_text.delta": ReasoningDelta,
    "response.reasoning_summary_text.delta": ReasoningDelta,
}
_PARTS: Final[dict[str, tuple[str, Callable[[int, str], Event]]]] = {
    "output_text": ("text", TextDelta),
    "refusal": ("refusal", RefusalDelta),
    "reasoning_text": ("text", ReasoningDelta),
    "summary_text": ("text", ReasoningDelta),
}
_ENDS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
# Codes of a failed response in the words of `failure_of_record`.
_KINDS: Final = {"rate_limit_exceeded": "rate_limit_error", "invalid_prompt": "invalid_request_error"}


class ResponsesReader:
    """
    Reads the answer to one request of the Responses API.

    `silent_bound` is the output bound where the server says `completed` also of an answer that it cut
    there; None where it can be believed.
    """

    def __init__(self, *, alert: Alert, credential: str, silent_bound: int | None = None) -> None:
        self.is_done = False
        self._silent_bound = silent_bound
        self._credential = credential
        self._usage = UsageWatch(alert)
        self._items: dict[Any, _Item] = {}
        # Whether anything was generated, seen or not; and whether any of it became an event.
        self._has_output = False
        self._has_events = False
        self._is_finished = False
        self._calls = 0
        self._characters = 0

    def feed(self, record: ServerSentEvent) -> list[Event]:
        if self.is_done:
            return []
        if record.data.startswith(b"[DONE]"):
            self.is_done = True
            return []
        return self._read(decoded(_decode, record.data))

    def feed_whole(self, body: bytes) -> list[Event]:
        whole = decoded(_decode, body)
        if whole.error:
            raise self._failure(whole.error)
        response = {
            "status": whole.status,
            "incomplete_details": whole.incomplete_details,
            "output": whole.output,
            "usage": whole.usage,
        }
        events: list[Event] = []
        self._end(response, events)
        return events

    def end(self) -> list[Event]:
        if not self._is_finished:
            raise BackendFailed
        return []

    def _read(self, event: _ResponseEvent) -> list[Event]:
        events: list[Event] = []
        kind = event.type
        delta_type = _DELTAS.get(kind)
        if delta_type is not None:
            self._read_delta(event, delta_type, events)
        elif kind == "error" or event.error:
            raise self._failure(
                event.error or {"code": event.code, "message": event.message, "param": event.param}
            )
        elif kind == "response.function_call_arguments.delta":
            self._continue_call(event, events)
        elif kind == "response.output_item.added":
            self._open(event, events)
        elif kind == "response.output_item.done":
            self._close(event.item, self._item_of(event, event.item), events)
        elif kind == "response.output_text.annotation.added":
            self._add_annotation(event.annotation, self._item_of(event).offset, events)
        elif kind in _ENDS:
            self._end(_object(event.response), events, kind.removeprefix("response."))
        return events

    # --- Items ----------------------------------------------------------------------------------------

    def _item_of(self, event: _ResponseEvent, item: Any = None) -> _Item:
        """The item that this is about, by its id or by its index, whichever is known of it."""
        names = [
            name
            for name in (event.item_id or _object(item).get("id"), event.output_index)
            if type(name) in (str, int)
        ]
        found = next((self._items[name] for name in names if name in self._items), None)
        if found is None:
            found = _Item()
        for name in names:
            self._items.setdefault(name, found)
        return found

    def _open(self, event: _ResponseEvent, events: list[Event]) -> None:
        # Thoughts that are kept from us begin like this as well, and they are paid for.
        self._has_output = True
        item = _object(event.item)
        known = self._item_of(event, item)
        if item.get("type") == "function_call":
            self._start_call(item, known, events)
        elif item.get("type") == "web_search_call" and _query(item):
            self._search(item, known, events)

    def _close(self, raw: Any, known: _Item, events: list[Event]) -> None:
        """Send on what of this item was not sent yet."""
        self._has_output = True
        item = _object(raw)
        kind = item.get("type")
        if kind == "function_call":
            self._start_call(item, known, events)
            if not known.has_arguments:
                self._add_arguments(item.get("arguments"), known, events)
        elif kind == "web_search_call":
            self._search(item, known, events)
        elif kind in ("message", "reasoning") and not known.has_text:
            for part_index, part in enumerate(_list(item.get("content")) or _list(item.get("summary"))):
                self._read_part(_object(part), part_index, known, events)

    # --- Words ----------------------------------------------------------------------------------------

    def _read_delta(
        self, event: _ResponseEvent, delta_type: Callable[[int, str], Event], events: list[Event]
    ) -> None:
        text = event.delta
        if not isinstance(text, str) or not text:
            return
        known = self._item_of(event)
        part_index = event.summary_index if event.content_index is None else event.content_index
        if known.has_text and part_index != known.part and delta_type is ReasoningDelta:
            text = f"\n\n{text}"  # parts of a summary are paragraphs, without a mark of their own
        self._add_text(text, part_index, delta_type, known, events)

    def _read_part(self, part: dict[str, Any], part_index: int, known: _Item, events: list[Event]) -> None:
        field, delta_type = _PARTS.get(str(part.get("type")), ("", None))
        text = part.get(field)
        if delta_type is None or not isinstance(text, str) or not text:
            return
        if delta_type is ReasoningDelta and known.has_text:
            text = f"\n\n{text}"
        self._add_text(text, part_index, delta_type, known, events)
        for annotation in _list(part.get("annotations")):
            self._add_annotation(annotation, known.offset, events)

    def _add_text(
        self,
        text: str,
        part_index: Any,
        delta_type: Callable[[int, str], Event],
        known: _Item,
        events: list[Event],
    ) -> None:
        if not known.has_text or part_index != known.part:
            known.part, known.offset = part_index, self._characters
        known.has_text = self._has_events = self._has_output = True
        if delta_type is TextDelta:
            self._characters += len(text)
        events.append(delta_type(0, text))

    def _add_annotation(self, raw: Any, offset: int, events: list[Event]) -> None:
        """An index counts from the start of a part here, and from that of the answer in our events."""
        cited = _object(raw)
        url, title = cited.get("url"), cited.get("title")
        if cited.get("type") == "url_citation" and isinstance(url, str):
            start, end = (offset + _index_or_zero(cited.get(name)) for name in ("start_index", "end_index"))
            events.append(Annotation(0, url, title if isinstance(title, str) else "", start, end))

    # --- Calls ----------------------------------------------------------------------------------------

    def _start_call(self, item: dict[str, Any], known: _Item, events: list[Event]) -> None:
        if known.call is not None:
            return
        name, id = item.get("name"), item.get("call_id") or item.get("id")
        if not isinstance(name, str) or not name or self._calls == MAX_CALLS:
            raise BackendFailed  # a call of nothing: no client could answer it
        known.call = self._calls
        self._calls += 1
        self._has_events = True
        id = id if isinstance(id, str) else f"call_{secrets.token_hex(12)}"
        events.append(ToolCallStart(0, known.call, id, name))

    def _continue_call(self, event: _ResponseEvent, events: list[Event]) -> None:
        known = self._item_of(event)
        # Pieces of a call that never began belong to a tool of the server's own.
        if known.call is not None:
            self._add_arguments(event.delta, known, events)

    def _add_arguments(self, text: Any, known: _Item, events: list[Event]) -> None:
        if known.call is not None and isinstance(text, str) and text:
            known.has_arguments = True
            events.append(ToolCallArguments(0, known.call, text))

    def _search(self, item: dict[str, Any], known: _Item, events: list[Event]) -> None:
        # To open a page that was found is an action of the same item, and no search.
        if not known.is_search_sent and _object(item.get("action")).get("type", "search") == "search":
            known.is_search_sent = self._has_events = True
            events.append(WebSearch(0, _query(item)))

    # --- The end --------------------------------------------------------------------------------------

    def _end(self, response: dict[str, Any], events: list[Event], ending: str = "") -> None:
        states = (response.get("status"), ending)
        usage = response.get("usage")
        if "failed" in states:
            has_generated = bool(_object(usage).get("output_tokens"))
            raise self._failure(response.get("error"), has_generated=has_generated)
        is_incomplete = "incomplete" in states
        if "cancelled" in states or not (is_incomplete or "completed" in states):
            raise BackendFailed
        if not self._has_events:
            for item in _list(response.get("output")):
                self._close(item, _Item(), events)
        believed = None if usage is None else self._read_usage(usage)
        events.append(Finish(0, self._reason(response, believed, is_incomplete=is_incomplete)))
        if believed is not None:
            events.append(believed)
        self._is_finished = self.is_done = True

    def _reason(self, response: dict[str, Any], usage: Usage | None, *, is_incomplete: bool) -> FinishReason:
        if is_incomplete:
            why = _object(response.get("incomplete_details")).get("reason")
            return "content_filter" if why == "content_filter" else "length"
        bound = self._silent_bound
        if bound is not None and usage is not None and usage.completion_tokens >= bound:
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _read_usage(self, usage: Any) -> Usage | None:
        if not isinstance(usage, dict):
            self._usage.warn("not an object")
            return None
        of_input = _object(usage.get("input_tokens_details"))
        of_output = _object(usage.get("output_tokens_details"))
        return self._usage.report(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            total_tokens=usage.get("total_tokens"),
            has_output=self._has_events,
            cached_tokens=of_input.get("cached_tokens"),
            cache_write_tokens=of_input.get("cache_write_tokens"),
            audio_input_tokens=of_input.get("audio_tokens"),
            reasoning_tokens=of_output.get("reasoning_tokens"),
            audio_output_tokens=of_output.get("audio_tokens"),
        )

    def _failure(self, error: Any, *, has_generated: bool = False) -> Exception:
        code = _object(error).get("code")
        if isinstance(code, str) and code in _KINDS:
            error = {**error, "type": _KINDS[code]}
        has_output = self._has_output or has_generated
        return failure_of_record(error, has_output=has_output, credential=self._credential)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _index_or_zero(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _query(item: dict[str, Any]) -> str:
    action = _object(item.get("action"))
    query = action.get("query") or next(iter(_list(action.get("queries"))), "")
    return query if isinstance(query, str) else ""
