"""The items of a response's output as they grow, and how each is told when it begins and when it is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from inference.events import Annotation, Logprobs, TokenLogprob, TopLogprob

Told = dict[str, Any]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Frame(Struct, frozen=True):
    """The events around one kind of text."""

    added: str
    delta: str
    done: str
    part_done: str
    place: str = "content_index"
    field: str = "text"


def _in_content(name: str, field: str = "text") -> Frame:
    return Frame(
        "response.content_part.added",
        f"response.{name}.delta",
        f"response.{name}.done",
        "response.content_part.done",
        field=field,
    )


class Words:
    """One text. A list, because text joined piece by piece costs its square."""

    frame: Frame
    type: str

    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def told(self) -> Told:
        return {"type": self.type, self.frame.field: self.text}

    def beside(self) -> Told:
        """What the event that ends the text says beside it."""
        return {}


class OutputText(Words):
    frame = _in_content("output_text")
    type = "output_text"

    def __init__(self) -> None:
        super().__init__()
        # How much text of the answer came before, in other items: citations count from its start.
        self.offset = 0
        self.annotations: list[Told] = []
        self.logprobs: list[Told] = []

    def cite(self, event: Annotation) -> Told:
        citation = {
            "type": "url_citation",
            "url": event.url,
            "title": event.title,
            "start_index": max(0, event.start - self.offset),
            "end_index": max(0, event.end - self.offset),
        }
        self.annotations.append(citation)
        return citation

    def told(self) -> Told:
        return {**super().told(), "annotations": list(self.annotations), "logprobs": list(self.logprobs)}

    def beside(self) -> Told:
        return {"logprobs": list(self.logprobs)}


class Refusal(Words):
    frame = _in_content("refusal", field="refusal")
    type = "refusal"


class Thoughts(Words):
    frame = _in_content("reasoning_text")
    type = "reasoning_text"


class Summary(Words):
    frame = Frame(
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        place="summary_index",
    )
    type = "summary_text"


class Item(ABC):
    """One item of the output, at its place there for good."""

    prefix: str

    def __init__(self, id: str, place: int) -> None:
        self.id = id
        self.place = place
        self.status: ItemStatus = "in_progress"
        # Of a message and of reasoning; the last one is the one being written, while `is_writing`.
        self.parts: list[Words] = []
        self.is_writing = False

    @abstractmethod
    def told(self) -> Told:
        """As it stands now, in the shape that clients know."""


class Message(Item):
    prefix = "msg"

    def told(self) -> Told:
        return {
            "id": self.id,
            "type": "message",
            "status": self.status,
            "role": "assistant",
            "content": [part.told() for part in self.parts],
        }


class ReasoningItem(Item):
    """With its whole text, or with the same text as a summary, which is what some clients can show."""

    prefix = "rs"

    def __init__(self, id: str, place: int, *, summarizes: bool, seal: Callable[[str], str] | None) -> None:
        super().__init__(id, place)
        self._summarizes = summarizes
        self._seal = seal
        self._sealed: str | None = None

    @property
    def words(self) -> type[Words]:
        return Summary if self._summarizes else Thoughts

    def close(self) -> None:
        # Once: every sealing gives other bytes, and the item is told twice.
        if self._seal is not None:
            self._sealed = self._seal("".join(part.text for part in self.parts))

    def told(self) -> Told:
        parts = [part.told() for part in self.parts]
        told: Told = {"id": self.id, "type": "reasoning", "summary": parts if self._summarizes else []}
        if not self._summarizes:
            told["content"] = parts
        if self._sealed is not None:
            told["encrypted_content"] = self._sealed
        return {**told, "status": self.status}


class FunctionCall(Item):
    prefix = "fc"

    def __init__(self, id: str, place: int, *, call_id: str, name: str) -> None:
        super().__init__(id, place)
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []

    def told(self) -> Told:
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": "".join(self.arguments),
        }


class SearchCall(Item):
    prefix = "ws"

    def __init__(self, id: str, place: int, *, query: str) -> None:
        super().__init__(id, place)
        self._query = query

    def told(self) -> Told:
        action = {"type": "search", "query": self._query, "queries": [self._query]}
        return {"id": self.id, "type": "web_search_call", "status": self.status, "action": action}


def logprobs_of(logprobs: Logprobs) -> list[Told]:
    return [{**_told(each), "top_logprobs": [_told(top) for top in each.top]} for each in logprobs]


def _told(each: TokenLogprob | TopLogprob) -> Told:
    # The SDK wants bytes; where a backend gave none they are those of the token.
    spelled = each.token.encode() if each.bytes is None else each.bytes
    return {"token": each.token, "bytes": list(spelled), "logprob": each.logprob}
