"""Events of one answer in any order that the contract of backends allows, for properties of responses."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    PromptLogprobs,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
    WebSearch,
)
from tests.inference.dialects.chat.events import COUNT, TEXT, completions, logprobs

PLACE = st.integers(0, 20)


@st.composite
def shuffled_answers(draw: st.DrawFn) -> list[Event]:
    """Thoughts, texts, refusals, citations, searches and calls as they come, with arguments in turns."""
    events: list[Event] = []
    calls = 0
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(["text", "refusal", "thought", "citation", "search", "call", "arguments"])
        )
        if kind == "text":
            events.append(TextDelta(0, draw(TEXT), draw(logprobs())))
        elif kind == "refusal":
            events.append(RefusalDelta(0, draw(TEXT)))
        elif kind == "thought":
            events.append(ReasoningDelta(0, draw(TEXT)))
        elif kind == "citation":
            events.append(Annotation(0, "https://e.com/", draw(TEXT), draw(PLACE), draw(PLACE)))
        elif kind == "search":
            events.append(WebSearch(0, draw(TEXT)))
        elif kind == "call":
            # Some servers give several calls one id, or none.
            identifier = draw(st.sampled_from(["", "call_a", f"call_{calls}"]))
            events.append(ToolCallStart(0, calls, identifier, draw(TEXT) or "f", draw(TEXT)))
            calls += 1
        elif calls:
            events.append(ToolCallArguments(0, draw(st.integers(0, calls - 1)), draw(TEXT)))
    return [*events, Finish(0, draw(st.sampled_from(get_args(FinishReason)))), *draw(usages())]


@st.composite
def usages(draw: st.DrawFn) -> list[Event]:
    if draw(st.booleans()):
        return []
    return [Usage(draw(COUNT), draw(COUNT), cached_tokens=draw(st.none() | st.integers(0, 9)))]


@st.composite
def usual_answers(draw: st.DrawFn) -> list[Event]:
    first = [PromptLogprobs((None,))] if draw(st.booleans()) else []
    return [*first, *draw(completions(0)), *draw(usages())]


def answers() -> st.SearchStrategy[list[Event]]:
    return usual_answers() | shuffled_answers()
