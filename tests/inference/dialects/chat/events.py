"""Events as any backend might send them, for properties that must hold for all of them."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    FunctionCallArguments,
    FunctionCallStart,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
    TopLogprob,
    Usage,
)

# Characters that have cut records in two somewhere: line breaks of every kind, several bytes, quotes.
# No NUL, which may not be sent back.
TEXT = st.text(
    st.sampled_from('a {}[]"\\:,\n\r\u2028\u2029\u0085\x0b\x1eé漢😀')
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=6,
)
COUNT = st.integers(0, 2**31 - 1)
NUMBER = st.floats(-20, 0).map(lambda value: round(value, 6))


@st.composite
def logprobs(draw: st.DrawFn) -> tuple[TokenLogprob, ...] | None:
    if draw(st.booleans()):
        return None
    top = (TopLogprob(draw(TEXT), draw(NUMBER), None),) if draw(st.booleans()) else ()
    return (TokenLogprob(draw(TEXT), draw(NUMBER), tuple(draw(TEXT).encode()), top),)


@st.composite
def tool_calls(draw: st.DrawFn, index: int) -> list[Event]:
    events: list[Event] = []
    for call in range(draw(st.integers(0, 2))):
        events.append(ToolCallStart(index, call, f"call_{call}", draw(TEXT) or "f", draw(TEXT)))
        events += [ToolCallArguments(index, call, text) for text in draw(st.lists(TEXT, max_size=3))]
    return events


@st.composite
def function_call(draw: st.DrawFn, index: int) -> list[Event]:
    start = FunctionCallStart(index, draw(TEXT) or "f", draw(TEXT))
    return [start, *(FunctionCallArguments(index, text) for text in draw(st.lists(TEXT, max_size=3)))]


@st.composite
def completions(draw: st.DrawFn, index: int) -> list[Event]:
    """The events of one completion, in an order that a model could have."""
    events: list[Event] = [ReasoningDelta(index, text) for text in draw(st.lists(TEXT, max_size=2))]
    events += [TextDelta(index, text, draw(logprobs())) for text in draw(st.lists(TEXT, max_size=4))]
    events += [RefusalDelta(index, text, draw(logprobs())) for text in draw(st.lists(TEXT, max_size=2))]
    events += [Annotation(index, "https://e.com/", draw(TEXT), 0, 3) for _ in range(draw(st.integers(0, 2)))]
    events += draw(tool_calls(index) | function_call(index))
    return [*events, Finish(index, draw(st.sampled_from(get_args(FinishReason))))]


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Up to three completions, interleaved as it comes, and the usage of all."""
    waiting = [draw(completions(index)) for index in range(draw(st.integers(1, 3)))]
    events: list[Event] = []
    while waiting:
        turn = draw(st.sampled_from(waiting))
        events.append(turn.pop(0))
        waiting = [completion for completion in waiting if completion]
    events.append(Usage(draw(COUNT), draw(COUNT), cached_tokens=draw(st.none() | st.integers(0, 9))))
    return events
