"""
Writing the events of an answer as the typed events of a stream, or as the response that they add up to.

What the SDKs' accumulators need, and what they do otherwise:

- first of all response.created, the same response id throughout (both raise);
- items and parts added before anything else about them, at indexes that count from 0 (Python: IndexError,
  Node: "missing output");
- an item done as the item that was added: same id, type and call id (Python: RuntimeError); call ids that
  differ from each other (the same);
- `arguments`, `annotations` and `logprobs` there from the start (Python: TypeError);
- no event that they do not know (Node throws).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct, json

from gateway_site.api import envelope
from gateway_site.api.errors import ApiError
from inference.dialects.responses.output_items import (
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputPart,
    OutputText,
    ReasoningItem,
    RefusalPart,
    WebSearchItem,
    logprobs_of,
)
from inference.dialects.responses.record_buffer import RecordBuffer, text_delta_prefix
from inference.dialects.responses.request import PATH
from inference.dialects.responses.response import (
    IncompleteDetails,
    IncompleteReason,
    ResponseFailure,
    ResponseObject,
    ResponseUsage,
    Status,
)
from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
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
from inference.prompt import Json

INCOMPLETE: dict[FinishReason, IncompleteReason] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
AnyPart = TypeVar("AnyPart", bound=OutputPart)


class ResponseInfo(Struct, frozen=True, kw_only=True):
    """What is known of a response before its first token."""

    id: str
    created: int
    model: str
    # The fields that repeat the request.
    echo: Json
    # Whether reasoning is shown as a summary.
    summarizes: bool = False
    # None where the client did not ask for reasoning to send back.
    seal: Callable[[str], str] | None = None
    now: Callable[[], float] = time.time


class ResponseWriter:
    """One response as it grows: a `Writer` of the records of a stream, and of one JSON object."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._id_suffix = info.id.rpartition("_")[2]
        self._items: list[OutputItem] = []
        # The message or the reasoning that is being written; None between them.
        self._open_item: MessageItem | ReasoningItem | None = None
        # By their number. They stay open to the end: arguments of several may come in turns.
        self._calls: dict[int, FunctionCallItem] = {}
        self._last_item: OutputItem | None = None
        # Of all text so far, because citations count from its start.
        self._characters = 0
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._completed_at: int | None = None
        self._records = RecordBuffer()
        # While a stream's text is being written: its part, and how each of its records begins.
        self._text_part: OutputText | None = None
        self._text_prefix = b""

    # --- Streams --------------------------------------------------------------------------------------

    def write(self, event: Event) -> bytes:
        """Encode an event as records; none for what waits."""
        part = self._text_part
        if part is not None and type(event) is TextDelta and event.logprobs is None:
            text = event.text
            if not text:
                return b""
            part.pieces.append(text)
            self._characters += len(text)
            return self._records.text_delta(self._text_prefix, text)
        if not self._records.is_streaming:
            self._records.is_streaming = True
            self._emit("response.created", response=self._response("in_progress"))
            self._emit("response.in_progress", response=self._response("in_progress"))
        self.add(event)
        return self._records.take()

    def end(self, cost_usd: str | None = None, /) -> bytes:
        """Encode the last record. Usage is known by now, and the cost is given where it was asked for."""
        ended = self._ended_response()
        if cost_usd is not None and ended.usage is not None:
            ended.cost = cost_usd
        self._emit(f"response.{self._final_status()}", response=ended)
        return self._records.take()

    def fail(self, error: ApiError) -> bytes:
        """
        Encode the records that end a stream which was under way when `error` came.

        The SDKs raise at the first record. The second is for those who read records by themselves and
        wait for a response to end.
        """
        enveloped = envelope.body_of(error, path=PATH)["error"]
        self._emit("error", code=error.code, message=error.message, param=error.param, error=enveloped)
        for item in self._items:
            item.status = "incomplete" if item.status == "in_progress" else item.status
        # The SDK's list of codes is closed.
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        failed = self._response("failed", error=ResponseFailure(code, error.message))
        self._emit("response.failed", response=failed)
        return self._records.take()

    def _emit(self, type: str, **fields: Any) -> None:
        self._records.append(type, fields)

    # --- The response ---------------------------------------------------------------------------------

    def result(self) -> bytes:
        return json.encode(self._ended_response())

    def _ended_response(self) -> ResponseObject:
        status = self._final_status()
        if status == "completed" and self._completed_at is None:
            self._completed_at = int(self._info.now())
        return self._response(status)

    def _final_status(self) -> Status:
        return "incomplete" if self._finish in INCOMPLETE else "completed"

    def _response(self, status: Status, error: ResponseFailure | None = None) -> ResponseObject:
        info = self._info
        response = ResponseObject(
            id=info.id,
            created_at=info.created,
            status=status,
            error=error,
            model=info.model,
            output=[item.to_json() for item in self._items],
            usage=None if self._usage is None else ResponseUsage.of(self._usage),
            **info.echo,
        )
        if status == "incomplete" and self._finish is not None:
            response.incomplete_details = IncompleteDetails(INCOMPLETE[self._finish])
        if status == "completed" and self._completed_at is not None:
            response.completed_at = self._completed_at
        return response

    # --- Events ---------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text=text, logprobs=logprobs) if text or logprobs:
                self._add_text(text, logprobs)
            case RefusalDelta(text=text) if text:
                message = self._open_message()
                self._append_text(message, self._open_part(message, RefusalPart), text)
            case ReasoningDelta(text=text) if text:
                item = self._open_reasoning()
                self._append_text(item, self._open_part(item, item.part_type), text)
            case Annotation():
                self._add_annotation(event)
            case Finish(reason=reason):
                self._end_items(reason)
            case Usage():
                self._usage = event
            case WebSearch(query=query):
                self._add_web_search(query)
            case TextDelta() | RefusalDelta() | ReasoningDelta() | PromptLogprobs():
                return
            case _:
                self._add_call(event)

    def _add_call(self, event: Event) -> None:
        match event:
            case ToolCallStart(call=number, id=identifier, name=name, arguments=arguments):
                self._start_call(number, identifier, name, arguments)
            case FunctionCallStart(name=name, arguments=arguments):
                self._start_call(len(self._calls), "", name, arguments)
            case ToolCallArguments(call=number, text=text):
                self._append_arguments(self._calls[number], text)
            case FunctionCallArguments(text=text):
                self._append_arguments(self._calls[max(self._calls)], text)
            case _:
                raise TypeError(f"{type(event).__name__} is not an event that a response can write")

    def _add_text(self, text: str, logprobs: Logprobs | None) -> None:
        message = self._open_message()
        part = self._open_text_part(message)
        self._characters += len(text)
        token_fields = logprobs_of(logprobs or ())
        part.logprobs += token_fields
        self._append_text(message, part, text, logprobs=token_fields)
        if self._records.is_streaming:
            self._text_part = part
            self._text_prefix = text_delta_prefix(part.event_types.delta, _part_fields(message, part))

    def _append_text(self, item: OutputItem, part: OutputPart, text: str, **fields: Any) -> None:
        part.pieces.append(text)
        if self._records.is_streaming:
            self._emit(part.event_types.delta, **_part_fields(item, part), delta=text, **fields)

    def _add_annotation(self, event: Annotation) -> None:
        message = self._open_message()
        part = self._open_text_part(message)
        citation = part.add_citation(event)
        self._emit(
            "response.output_text.annotation.added",
            **_part_fields(message, part),
            annotation_index=len(part.annotations) - 1,
            annotation=citation,
        )

    def _start_call(self, number: int, call_id: str, name: str, arguments: str) -> None:
        self._close_open_item()
        if not call_id or any(call.call_id == call_id for call in self._calls.values()):
            call_id = f"call_{self._id_suffix}_{number}"
        item = FunctionCallItem(*self._next_id_and_index(FunctionCallItem), call_id=call_id, name=name)
        self._calls[number] = item
        self._add_item(item)
        self._append_arguments(item, arguments)

    def _append_arguments(self, item: FunctionCallItem, text: str) -> None:
        self._last_item = item
        if text:
            item.arguments.append(text)
            self._emit("response.function_call_arguments.delta", **_item_fields(item), delta=text)

    def _add_web_search(self, query: str) -> None:
        self._close_open_item()
        item = WebSearchItem(*self._next_id_and_index(WebSearchItem), query=query)
        self._add_item(item)
        for step in ("in_progress", "searching", "completed"):
            self._emit(f"response.web_search_call.{step}", **_item_fields(item))
        self._end_item(item, "completed")

    # --- Items and parts ------------------------------------------------------------------------------

    def _next_id_and_index(self, kind: type[OutputItem]) -> tuple[str, int]:
        """Give the id and the output index of the next item."""
        earlier = sum(type(item) is kind for item in self._items)
        suffix = f"_{earlier + 1}" if earlier else ""
        return f"{kind.prefix}_{self._id_suffix}{suffix}", len(self._items)

    def _open_message(self) -> MessageItem:
        if not isinstance(self._open_item, MessageItem):
            self._close_open_item()
            self._open_item = MessageItem(*self._next_id_and_index(MessageItem))
            self._add_item(self._open_item)
        self._last_item = self._open_item
        return self._open_item

    def _open_reasoning(self) -> ReasoningItem:
        if not isinstance(self._open_item, ReasoningItem):
            self._close_open_item()
            id, output_index = self._next_id_and_index(ReasoningItem)
            info = self._info
            self._open_item = ReasoningItem(id, output_index, summarizes=info.summarizes, seal=info.seal)
            self._add_item(self._open_item)
        self._last_item = self._open_item
        return self._open_item

    def _open_text_part(self, message: MessageItem) -> OutputText:
        part = self._open_part(message, OutputText)
        if not part.pieces and not part.annotations:
            part.offset = self._characters
        return part

    def _open_part(self, item: OutputItem, kind: type[AnyPart]) -> AnyPart:
        """Give the part of this kind that is being written, or begin one."""
        if item.is_writing:
            part = item.parts[-1]
            if isinstance(part, kind):
                return part
            self._end_part(item)
        made = kind()
        item.parts.append(made)
        item.is_writing = True
        self._emit(made.event_types.added, **_part_fields(item, made), part=made.to_json())
        return made

    def _end_part(self, item: OutputItem) -> None:
        part = item.parts[-1]
        item.is_writing = False
        self._text_part = None
        fields = _part_fields(item, part)
        types = part.event_types
        self._emit(types.done, **fields, **{types.text_field: part.text}, **part.done_fields())
        self._emit(types.part_done, **fields, part=part.to_json())

    def _add_item(self, item: OutputItem) -> None:
        self._items.append(item)
        self._last_item = item
        self._emit("response.output_item.added", output_index=item.output_index, item=item.to_json())

    def _close_open_item(self, status: ItemStatus = "completed") -> None:
        item, self._open_item = self._open_item, None
        if item is None:
            return
        if item.is_writing:
            self._end_part(item)
        if isinstance(item, ReasoningItem):
            item.close()
        self._end_item(item, status)

    def _end_item(self, item: OutputItem, status: ItemStatus) -> None:
        item.status = status
        self._emit("response.output_item.done", output_index=item.output_index, item=item.to_json())

    def _end_items(self, reason: FinishReason) -> None:
        """End the items. Cut short is the one that was being written; the others are whole."""
        self._finish = reason
        for item in self._items:
            if item.status != "in_progress":
                continue
            is_cut = reason in INCOMPLETE and item is self._last_item
            status: ItemStatus = "incomplete" if is_cut else "completed"
            if isinstance(item, FunctionCallItem):
                arguments = "".join(item.arguments)
                self._emit(
                    "response.function_call_arguments.done",
                    **_item_fields(item),
                    name=item.name,
                    arguments=arguments,
                )
                self._end_item(item, status)
            else:
                self._close_open_item(status)


def _item_fields(item: OutputItem) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.output_index}


def _part_fields(item: OutputItem, part: OutputPart) -> dict[str, Any]:
    """Say where the part is that is being written, which is the last one of its item."""
    return {**_item_fields(item), part.event_types.index_field: len(item.parts) - 1}
