"""
Events into the typed events of a response's stream, and into the response that they add up to.

What the SDKs' accumulators need, and what they do otherwise:

- `response.created` first, the same response id throughout (both raise);
- items and parts added before anything is said of them, at places that count from 0 (Python: IndexError,
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
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    OutputText,
    ReasoningItem,
    Refusal,
    SearchCall,
    Words,
    logprobs_of,
)
from inference.dialects.responses.records import Records, opening_of
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
AnyWords = TypeVar("AnyWords", bound=Words)


class ResponseInfo(Struct, frozen=True, kw_only=True):
    """What is known of a response before its first word."""

    id: str
    created: int
    model: str
    # The fields that repeat the request.
    echo: Json
    # Whether thoughts are told as a summary.
    summarizes: bool = False
    # None where the client did not ask for thoughts to send back.
    seal: Callable[[str], str] | None = None
    now: Callable[[], float] = time.time


class ResponseWriter:
    """One response as it grows. `write` gives records; `add` and `result` are for one JSON object."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._number = info.id.rpartition("_")[2]
        self._items: list[Item] = []
        # The message or the reasoning that is being written; None between them.
        self._open: Message | ReasoningItem | None = None
        # By their number. They stay open to the end: arguments of several may come in turns.
        self._calls: dict[int, FunctionCall] = {}
        self._last: Item | None = None
        # Of all text so far, because citations count from its start.
        self._characters = 0
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._completed_at: int | None = None
        self._records = Records()
        # While a stream's text is being written: its part, and how each of its records begins.
        self._text: OutputText | None = None
        self._opening = b""

    # --- Streams --------------------------------------------------------------------------------------

    def write(self, event: Event) -> bytes:
        """The records of `event`; none for what waits."""
        part = self._text
        if part is not None and type(event) is TextDelta and event.logprobs is None:
            text = event.text
            if not text:
                return b""
            part.pieces.append(text)
            self._characters += len(text)
            return self._records.text_delta(self._opening, text)
        if not self._records.is_on:
            self._records.is_on = True
            self._tell("response.created", response=self._response("in_progress"))
            self._tell("response.in_progress", response=self._response("in_progress"))
        self.add(event)
        return self._records.take()

    def end(self) -> bytes:
        """The last record. Usage is known by now."""
        self._tell(f"response.{self._final_status()}", response=self._ended_response())
        return self._records.take()

    def fail(self, error: ApiError) -> bytes:
        """
        The records that end a stream which was under way when `error` came.

        The SDKs raise at the first record. The second is for those who read records by themselves and
        wait for a response to end.
        """
        enveloped = envelope.body_of(error, path=PATH)["error"]
        self._tell("error", code=error.code, message=error.message, param=error.param, error=enveloped)
        for item in self._items:
            item.status = "incomplete" if item.status == "in_progress" else item.status
        # The SDK's list of codes is closed.
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        failed = self._response("failed", error=ResponseFailure(code, error.message))
        self._tell("response.failed", response=failed)
        return self._records.take()

    def _tell(self, type: str, **fields: Any) -> None:
        self._records.tell(type, fields)

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
            output=[item.told() for item in self._items],
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
                self._say_text(text, logprobs)
            case RefusalDelta(text=text) if text:
                self._say(self._message(), self._part_of(self._message(), Refusal), text)
            case ReasoningDelta(text=text) if text:
                item = self._reasoning()
                self._say(item, self._part_of(item, item.words), text)
            case Annotation():
                self._cite(event)
            case Finish(reason=reason):
                self._end_items(reason)
            case Usage():
                self._usage = event
            case WebSearch(query=query):
                self._search(query)
            case TextDelta() | RefusalDelta() | ReasoningDelta() | PromptLogprobs():
                return
            case _:
                self._add_call(event)

    def _add_call(self, event: Event) -> None:
        match event:
            case ToolCallStart(call=number, id=identifier, name=name, arguments=arguments):
                self._call(number, identifier, name, arguments)
            case FunctionCallStart(name=name, arguments=arguments):
                self._call(len(self._calls), "", name, arguments)
            case ToolCallArguments(call=number, text=text):
                self._argue(self._calls[number], text)
            case FunctionCallArguments(text=text):
                self._argue(self._calls[max(self._calls)], text)
            case _:
                raise TypeError(f"{type(event).__name__} is not an event that a response can tell")

    def _say_text(self, text: str, logprobs: Logprobs | None) -> None:
        message = self._message()
        part = self._text_part(message)
        self._characters += len(text)
        likely = logprobs_of(logprobs or ())
        part.logprobs += likely
        self._say(message, part, text, logprobs=likely)
        if self._records.is_on:
            self._text, self._opening = part, opening_of(part.frame.delta, _where(message, part))

    def _say(self, item: Item, part: Words, text: str, **beside: Any) -> None:
        part.pieces.append(text)
        if self._records.is_on:
            self._tell(part.frame.delta, **_where(item, part), delta=text, **beside)

    def _cite(self, event: Annotation) -> None:
        message = self._message()
        part = self._text_part(message)
        citation = part.cite(event)
        self._tell(
            "response.output_text.annotation.added",
            **_where(message, part),
            annotation_index=len(part.annotations) - 1,
            annotation=citation,
        )

    def _call(self, number: int, call_id: str, name: str, arguments: str) -> None:
        self._close_open()
        if not call_id or any(call.call_id == call_id for call in self._calls.values()):
            call_id = f"call_{self._number}_{number}"
        item = FunctionCall(*self._next(FunctionCall), call_id=call_id, name=name)
        self._calls[number] = item
        self._add_item(item)
        self._argue(item, arguments)

    def _argue(self, item: FunctionCall, text: str) -> None:
        self._last = item
        if text:
            item.arguments.append(text)
            self._tell("response.function_call_arguments.delta", **_place(item), delta=text)

    def _search(self, query: str) -> None:
        self._close_open()
        item = SearchCall(*self._next(SearchCall), query=query)
        self._add_item(item)
        for step in ("in_progress", "searching", "completed"):
            self._tell(f"response.web_search_call.{step}", **_place(item))
        self._end_item(item, "completed")

    # --- Items and parts ------------------------------------------------------------------------------

    def _next(self, kind: type[Item]) -> tuple[str, int]:
        """The id and the place of the next item."""
        earlier = sum(type(item) is kind for item in self._items)
        suffix = f"_{earlier + 1}" if earlier else ""
        return f"{kind.prefix}_{self._number}{suffix}", len(self._items)

    def _message(self) -> Message:
        if not isinstance(self._open, Message):
            self._close_open()
            self._open = Message(*self._next(Message))
            self._add_item(self._open)
        self._last = self._open
        return self._open

    def _reasoning(self) -> ReasoningItem:
        if not isinstance(self._open, ReasoningItem):
            self._close_open()
            id, place = self._next(ReasoningItem)
            info = self._info
            self._open = ReasoningItem(id, place, summarizes=info.summarizes, seal=info.seal)
            self._add_item(self._open)
        self._last = self._open
        return self._open

    def _text_part(self, message: Message) -> OutputText:
        part = self._part_of(message, OutputText)
        if not part.pieces and not part.annotations:
            part.offset = self._characters
        return part

    def _part_of(self, item: Item, kind: type[AnyWords]) -> AnyWords:
        """The part of this kind that is being written, or a new one."""
        if item.is_writing:
            part = item.parts[-1]
            if isinstance(part, kind):
                return part
            self._end_part(item)
        made = kind()
        item.parts.append(made)
        item.is_writing = True
        self._tell(made.frame.added, **_where(item, made), part=made.told())
        return made

    def _end_part(self, item: Item) -> None:
        part = item.parts[-1]
        item.is_writing = False
        self._text = None
        where = _where(item, part)
        self._tell(part.frame.done, **where, **{part.frame.field: part.text}, **part.beside())
        self._tell(part.frame.part_done, **where, part=part.told())

    def _add_item(self, item: Item) -> None:
        self._items.append(item)
        self._last = item
        self._tell("response.output_item.added", output_index=item.place, item=item.told())

    def _close_open(self, status: ItemStatus = "completed") -> None:
        item, self._open = self._open, None
        if item is None:
            return
        if item.is_writing:
            self._end_part(item)
        if isinstance(item, ReasoningItem):
            item.close()
        self._end_item(item, status)

    def _end_item(self, item: Item, status: ItemStatus) -> None:
        item.status = status
        self._tell("response.output_item.done", output_index=item.place, item=item.told())

    def _end_items(self, reason: FinishReason) -> None:
        """Cut short is the one that was being written; the others are whole."""
        self._finish = reason
        for item in self._items:
            if item.status != "in_progress":
                continue
            status: ItemStatus = "incomplete" if reason in INCOMPLETE and item is self._last else "completed"
            if isinstance(item, FunctionCall):
                said = "".join(item.arguments)
                self._tell(
                    "response.function_call_arguments.done", **_place(item), name=item.name, arguments=said
                )
                self._end_item(item, status)
            else:
                self._close_open(status)


def _place(item: Item) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.place}


def _where(item: Item, part: Words) -> dict[str, Any]:
    """Of the part that is being written, which is the last one."""
    return {**_place(item), part.frame.place: len(item.parts) - 1}
