"""
The events of an answer, in no dialect: a backend yields them, a dialect writes them as JSON or SSE.

Neither knows the other, and nothing here knows a wire format. The request that they answer is an
`inference.prompt.Prompt`.

Everything is frozen: events are passed along, and nobody can change what an earlier step has judged.
Structs and not dataclasses, because an event is made for every token: 0.1 µs instead of 1.1. gc=False: these
hold no cycle, and a hundred streams make thousands a second that the collector would otherwise walk.

`index` is the completion, from 0. `billable_text` is what the model generated for an event, to be counted
where the backend reports no usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from inference.prompt import Json

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class TopLogprob(Struct, frozen=True, gc=False):
    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None


class TokenLogprob(Struct, frozen=True, gc=False, rename={"top": "top_logprobs"}):
    """A token's log probability, finite: JSON has no -Infinity, and -9999.0 is what clients know for it."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None
    top: tuple[TopLogprob, ...] = ()


# Logprobs travel with the text they belong to, so that a guard that holds text back holds them too:
# they spell the same words.
Logprobs: TypeAlias = tuple[TokenLogprob, ...]


class TextDelta(Struct, frozen=True, gc=False):
    index: int
    text: str
    logprobs: Logprobs | None = None

    @property
    def billable_text(self) -> str:
        return self.text


class RefusalDelta(Struct, frozen=True, gc=False):
    index: int
    text: str
    logprobs: Logprobs | None = None

    @property
    def billable_text(self) -> str:
        return self.text


class ReasoningDelta(Struct, frozen=True, gc=False):
    index: int
    text: str

    @property
    def billable_text(self) -> str:
        return self.text


class ToolCallStart(Struct, frozen=True, gc=False):
    """
    The model begins to call a tool. Some upstreams start with arguments.

    `call` counts the calls of one completion: 0, 1, 2, in order.
    """

    index: int
    call: int
    id: str
    name: str
    arguments: str = ""

    @property
    def billable_text(self) -> str:
        return self.name + self.arguments


class ToolCallArguments(Struct, frozen=True, gc=False):
    index: int
    call: int
    text: str

    @property
    def billable_text(self) -> str:
        return self.text


class FunctionCallStart(Struct, frozen=True, gc=False):
    """Legacy form of a tool call: at most one for each completion, and never together with tool calls."""

    index: int
    name: str
    arguments: str = ""

    @property
    def billable_text(self) -> str:
        return self.name + self.arguments


class FunctionCallArguments(Struct, frozen=True, gc=False):
    index: int
    text: str

    @property
    def billable_text(self) -> str:
        return self.text


class Annotation(Struct, frozen=True, gc=False):
    """A web page that the text from `start` to `end` (characters) rests on."""

    index: int
    url: str
    title: str
    start: int
    end: int

    @property
    def billable_text(self) -> str:
        return ""


class WebSearch(Struct, frozen=True, gc=False):
    """A search that the model made, sent before what it found."""

    index: int
    query: str

    @property
    def billable_text(self) -> str:
        return self.query


class PromptLogprobs(Struct, frozen=True, gc=False):
    """Once for the whole request: an entry for each token of the prompt, None for the first."""

    entries: tuple[Json | None, ...]

    @property
    def billable_text(self) -> str:
        return ""


class Finish(Struct, frozen=True, gc=False):
    """The end of one completion: exactly one for each, and its last event."""

    index: int
    reason: FinishReason

    @property
    def billable_text(self) -> str:
        return ""


class Usage(Struct, frozen=True, gc=False):
    """
    Tokens of the whole request, all completions together, counted from its start: a later one replaces
    an earlier one. Only `Usage.checked` may be given numbers from outside.
    """

    prompt_tokens: int
    completion_tokens: int
    # Parts of the above, not on top of them, and no token in two of them. None is not reported.
    cached_tokens: int | None = None
    # For five minutes; those for an hour are counted apart.
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    # No tokens, but searches that the model made.
    web_searches: int | None = None

    @classmethod
    def checked(cls, prompt_tokens: object, completion_tokens: object, **details: object) -> Usage | None:
        """
        What a backend reported, or None if the two counts that money follows are not plain counts.

        None, and never 0: unknown usage must not become free usage. `details` are the other fields. One that
        is no count is dropped; those that are together more than their whole are cut, the last first.
        """
        prompt = _count(prompt_tokens)
        completion = _count(completion_tokens)
        if prompt is None or completion is None:
            return None
        searches = details.pop("web_searches", None)
        return cls(
            prompt,
            completion,
            web_searches=_count(searches, MAX_SEARCHES_REPORTED),
            **_parts_of(prompt, PROMPT_DETAILS, details),
            **_parts_of(completion, COMPLETION_DETAILS, details),
        )

    @property
    def details(self) -> dict[str, int | None]:
        """What was reported beside the two counts, by field, as `checked` takes it."""
        return {name: getattr(self, name) for name in DETAILS}

    @property
    def cache_writes(self) -> int | None:
        """Prompt tokens written to a cache for however long, as clients are told."""
        if self.cache_write_1h_tokens is None:
            return self.cache_write_tokens
        return (self.cache_write_tokens or 0) + self.cache_write_1h_tokens

    @property
    def billable_text(self) -> str:
        return ""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


Event: TypeAlias = (
    TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArguments
    | FunctionCallStart
    | FunctionCallArguments
    | Annotation
    | WebSearch
    | PromptLogprobs
    | Finish
    | Usage
)

# No context window is near this; it keeps tokens times price inside a 64-bit column.
MAX_TOKENS_REPORTED = 2**31 - 1
MAX_SEARCHES_REPORTED = 1_000

# The fields of Usage that are parts of its two counts. Where they are more than the whole, the first count.
PROMPT_DETAILS = ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "audio_input_tokens")
COMPLETION_DETAILS = ("reasoning_tokens", "audio_output_tokens")
DETAILS = (*PROMPT_DETAILS, *COMPLETION_DETAILS, "web_searches")


def _count(value: object, most: int = MAX_TOKENS_REPORTED) -> int | None:
    # `type`, not isinstance: True is an int to Python and not to us.
    if type(value) is int and 0 <= value <= most:
        return value
    return None


def _parts_of(whole: int, names: tuple[str, ...], details: Mapping[str, object]) -> dict[str, int]:
    """The plain counts among the details of these names, which add up to the whole at most."""
    parts = {}
    for name in names:
        count = _count(details.get(name))
        if count is not None:
            parts[name] = min(count, whole)
            whole -= parts[name]
    return parts
