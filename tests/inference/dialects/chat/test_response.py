"""A client reads a chat completion as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given

from inference.dialects.chat import parse
from inference.dialects.chat.response import ChatCompletion
from inference.events import (
    Event,
    Finish,
    FunctionCallArguments,
    FunctionCallStart,
    PromptLogprobs,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tests.inference.dialects.chat.events import answers
from tests.inference.dialects.chat.sdk import body_of, read_json


def answer_to(events: Sequence[Any]) -> dict[str, Any]:
    return json.loads(body_of(events))  # type: ignore[no-any-return]


def test_it_works() -> None:
    answer = answer_to([TextDelta(0, "He"), TextDelta(0, "llo"), Finish(0, "stop"), Usage(1, 2)])

    assert answer == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def test_tool_calls_are_whole_and_the_content_is_null() -> None:
    events = [
        ToolCallStart(0, 0, "call_1", "f"),
        ToolCallStart(0, 1, "call_2", "g", "{"),
        ToolCallArguments(0, 0, '{"a":'),
        ToolCallArguments(0, 1, "}"),
        ToolCallArguments(0, 0, "1}"),
        Finish(0, "tool_calls"),
    ]

    message = answer_to(events)["choices"][0]["message"]

    assert message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_a_legacy_function_call_is_whole() -> None:
    events = [FunctionCallStart(0, "f", "{"), FunctionCallArguments(0, "}"), Finish(0, "function_call")]

    message = answer_to(events)["choices"][0]["message"]

    assert message["function_call"] == {"name": "f", "arguments": "{}"}
    assert message["content"] is None


def test_choices_are_in_order_whatever_came_first() -> None:
    events = [TextDelta(1, "b"), Finish(1, "stop"), TextDelta(0, "a"), Finish(0, "length")]

    choices = answer_to(events)["choices"]

    assert [(choice["index"], choice["message"]["content"]) for choice in choices] == [(0, "a"), (1, "b")]
    assert [choice["finish_reason"] for choice in choices] == ["length", "stop"]


def test_logprobs_of_text_and_refusal_stay_apart() -> None:
    events = [
        TextDelta(0, "a", (TokenLogprob("a", -0.5, (97,)),)),
        RefusalDelta(0, "b", (TokenLogprob("b", -1.5),)),
        Finish(0, "stop"),
    ]

    logprobs = answer_to(events)["choices"][0]["logprobs"]

    assert logprobs["content"] == [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    assert logprobs["refusal"] == [{"token": "b", "logprob": -1.5, "bytes": None, "top_logprobs": []}]


def test_usage_details_are_sent_where_they_are_known() -> None:
    usage = answer_to([Finish(0, "stop"), Usage(5, 6, cached_tokens=0, reasoning_tokens=4)])["usage"]

    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}


def test_prompt_logprobs_are_in_the_answer() -> None:
    answer = answer_to([PromptLogprobs((None, {"1": {"logprob": -1.0}})), Finish(0, "stop")])

    assert answer["prompt_logprobs"] == [None, {"1": {"logprob": -1.0}}]


@pytest.mark.slow
@given(answers())
def test_any_answer_has_the_documented_shape(events: list[Event]) -> None:
    body = body_of(events)

    answer = msgspec.json.decode(body, type=ChatCompletion)

    assert all(choice.finish_reason is not None for choice in answer.choices)


@pytest.mark.slow
@given(answers())
def test_a_message_can_be_sent_back_as_it_came(events: list[Event]) -> None:
    """The loop of every agent: append the answer to the conversation, ask again."""
    events = [event for event in events if type(event).__name__ not in ("RefusalDelta", "Annotation")]
    completion = read_json(body_of(events))
    messages = [choice.message.to_dict() for choice in completion.choices]

    call = parse.parse(json.dumps({"model": "m", "messages": messages}).encode())

    assert [turn.content for turn in call.prompt.turns] == [message["content"] for message in messages]
