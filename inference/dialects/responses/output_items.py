"""The items of a response's output as they grow, and the JSON of each when it begins and when it is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from inference.events import Annotation, Logprobs, TokenLogprob, TopLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class PartEventTypes(Struct, frozen=True):
    """The types of the events around one kind of part, and the fields that differ in them."""

    added: str
    delta: str
    done: str
    part_done: str
    index_field: str = "content_index"
    text_field: str = "text"


def _content_part_events(name: str, text_field: str = "text") -> PartEventTypes:
    return PartEventTypes(
        "response.content_part.added",
        f"response.{name}.delta",
        f"response.{name}.done",
        "response.content_part.done",
        text_field=text_field,
    )


class OutputPart:
    """One text of an item as it grows. A list, because text joined piece by piece costs its square."""

    event_types: PartEventTypes
    type: str

    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, self.event_types.text_field: self.text}

    def done_fields(self) -> dict[str, Any]:
        """Fields that the event at the end of the text has beside the text."""
        return {}


class OutputText(OutputPart):
    event_types = _content_part_events("output_text")
    type = "output_text"

    def __init__(self) -> None:
        super().__init__()
        # How much text of the answer came before, in other items: citations count from its start.
        self.offset = 0
        self.annotations: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []

    def add_citation(self, event: Annotation) -> dict[str, Any]:
        citation = {
            "type": "url_citation",
            "url": event.url,
            "title": event.title,
            "start_index": max(0, event.start - self.offset),
            "end_index": max(0, event.end - self.offset),
        }
        self.annotations.append(citation)
        return citation

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "annotations": list(self.annotations), "logprobs": list(self.logprobs)}

    def done_fields(self) -> dict[str, Any]:
        return {"logprobs": list(self.logprobs)}


class RefusalPart(OutputPart):
    event_types = _content_part_events("refusal", text_field="refusal")
    type = "refusal"


class ReasoningText(OutputPart):
    event_types = _content_part_events("reasoning_text")
    type = "reasoning_text"


class ReasoningSummary(OutputPart):
    event_types = PartEventTypes(
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        index_field="summary_index",
    )
    type = "summary_text"


class OutputItem(ABC):
    """One item of the output as it grows, at an index that stays."""

    prefix: str

    def __init__(self, id: str, output_index: int) -> None:
        self.id = id
        self.output_index = output_index
        self.status: ItemStatus = "in_progress"
        # Of a message and of reasoning; the last one is the one being written, while `is_writing`.
        self.parts: list[OutputPart] = []
        self.is_writing = False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Write the item as it stands now, in the shape that clients know."""


class MessageItem(OutputItem):
    prefix = "msg"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "status": self.status,
            "role": "assistant",
            "content": [part.to_json() for part in self.parts],
        }


class ReasoningItem(OutputItem):
    """Reasoning with its whole text, or with that text as a summary, which is what some clients can show."""

    prefix = "rs"

    def __init__(
        self, id: str, output_index: int, *, summarizes: bool, seal: Callable[[str], str] | None
    ) -> None:
        super().__init__(id, output_index)
        self._summarizes = summarizes
        self._seal = seal
        self._sealed: str | None = None

    @property
    def part_type(self) -> type[OutputPart]:
        return ReasoningSummary if self._summarizes else ReasoningText

    def close(self) -> None:
        # Once: every sealing gives other bytes, and the item is written twice.
        if self._seal is not None:
            self._sealed = self._seal("".join(part.text for part in self.parts))

    def to_json(self) -> dict[str, Any]:
        parts = [part.to_json() for part in self.parts]
        summary = parts if self._summarizes else []
        fields: dict[str, Any] = {"id": self.id, "type": "reasoning", "summary": summary}
        if not self._summarizes:
            fields["content"] = parts
        if self._sealed is not None:
            fields["encrypted_content"] = self._sealed
        return {**fields, "status": self.status}


class FunctionCallItem(OutputItem):
    prefix = "fc"

    def __init__(self, id: str, output_index: int, *, call_id: str, name: str) -> None:
        super().__init__(id, output_index)
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": "".join(self.arguments),
        }


class WebSearchItem(OutputItem):
    prefix = "ws"

    def __init__(self, id: str, output_index: int, *, query: str) -> None:
        super().__init__(id, output_index)
        self._query = query

    def to_json(self) -> dict[str, Any]:
        action = {"type": "search", "query": self._query, "queries": [self._query]}
        return {"id": self.id, "type": "web_search_call", "status": self.status, "action": action}


def logprobs_of(logprobs: Logprobs) -> list[dict[str, Any]]:
    return [
        {**_token_fields(token), "top_logprobs": [_token_fields(top) for top in token.top]}
        for token in logprobs
    ]


def _token_fields(token: TokenLogprob | TopLogprob) -> dict[str, Any]:
    # The SDK wants bytes; where a backend gave none they are those of the token.
    spelled = token.token.encode() if token.bytes is None else token.bytes
    return {"token": token.token, "bytes": list(spelled), "logprob": token.logprob}
