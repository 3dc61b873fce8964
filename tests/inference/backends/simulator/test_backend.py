"""A client talks to the models of the simulator."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.api.errors import ProviderRejected, UnsupportedOption
from inference import tokenizer
from inference.backends.base import InferenceBackend, require_options
from inference.backends.simulator.backend import SimulatorBackend
from inference.dialects.chat.fold import ChatFold
from inference.dialects.chat.response import ChatCompletion
from inference.events import ReasoningDelta, TextDelta, Usage
from tests.inference.backends.simulator.call import SAID, Call, count_words, make
from tests.inference.dialects.chat.sdk import INFO


def ask(model: str = "echo", **fields: Any) -> ChatCompletion:
    fold = ChatFold(INFO)
    for event in Call(model, **fields).run().events:
        fold.add(event)
    return fold.completion()


def said(model: str = "echo", **fields: Any) -> str | None:
    return ask(model, **fields).choices[0].message.content


def test_it_works() -> None:
    answer = ask("simulator/echo")

    assert answer.choices[0].message.content == SAID
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 6)


def test_it_is_a_backend() -> None:
    backend: InferenceBackend = SimulatorBackend(count_words)

    assert backend.lacks


def test_usage_is_what_a_tokenizer_counts_of_the_whole_answer() -> None:
    count = tokenizer.counter("o200k_base")
    asked = '# Title\n\n| a | b |\n|---|---|\n  - it\'s 12345,  "quoted" 日本語。\n\n\n```py\nx = {1: 2}\n```'

    events = Call("echo", count=count, said=asked).run().events

    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == asked
    assert events[-1] == Usage(count(asked), count(asked), cached_tokens=0, reasoning_tokens=0)


# --- Options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["words", "thinker"])
def test_the_same_seed_says_the_same_and_another_something_else(model: str) -> None:
    assert said(model, seed=1) == said(model, seed=1)
    assert said(model, seed=1) != said(model, seed=2)
    assert said(model, said="a") != said(model, said="b")


def test_each_completion_is_another_one() -> None:
    answer = ask("words", n=3)

    assert len({choice.message.content for choice in answer.choices}) == 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_completions_interleave() -> None:
    events = Call("echo", n=2).run().events

    assert [event.index for event in events[:4] if isinstance(event, TextDelta)] == [0, 1, 0, 1]


@given(st.integers(1, 9), st.integers(1, 3), st.sampled_from(["echo", "words", "endless", "thinker"]))
def test_no_completion_passes_its_bound(bound: int, count: int, model: str) -> None:
    answer = ask(model, max_tokens=bound, n=count, said="a b c d")

    assert answer.usage is not None
    assert answer.usage.completion_tokens <= bound * count
    for choice in answer.choices:
        is_cut = model != "echo" or bound < 4
        assert choice.finish_reason == ("length" if is_cut else "stop")


def test_endless_ends_at_the_bound() -> None:
    answer = ask("endless", max_tokens=3000)

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3000
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("stop", "heard"), [("three", "one two "), (["six", "two"], "one "), ("one", ""), ("zz", SAID)]
)
def test_it_stops_before_the_stop_word(stop: Any, heard: str) -> None:
    answer = ask("echo", stop=stop)

    assert answer.choices[0].message.content == heard
    assert answer.choices[0].finish_reason == "stop"


def test_even_endless_stops_at_a_stop_word() -> None:
    start = said("endless", max_tokens=5)
    assert start is not None
    word = start.split()[3]

    assert said("endless", stop=word) == start[: start.index(word)]


@pytest.mark.parametrize(
    "fields", [{"thinking": True}, {"reasoning_effort": "high"}, {"reasoning": {"enabled": True}}]
)
def test_it_thinks_when_asked(fields: dict[str, Any]) -> None:
    answer = ask("echo", **fields)

    assert answer.choices[0].message.reasoning_content
    assert answer.choices[0].message.content == SAID
    assert answer.usage is not None
    thought = count_words(answer.choices[0].message.reasoning_content)
    assert answer.usage.completion_tokens_details == {"reasoning_tokens": thought}
    assert answer.usage.completion_tokens == thought + 6


def test_it_does_not_think_unasked_and_not_beyond_its_budget() -> None:
    assert not any(isinstance(event, ReasoningDelta) for event in Call("echo").run().events)
    short = ask("thinker", reasoning={"max_tokens": 2}).choices[0].message.reasoning_content
    assert short is not None
    assert count_words(short) == 2


def test_logprobs_spell_the_answer() -> None:
    answer = ask("echo", logprobs=True, top_logprobs=3)

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(token.token for token in logprobs.content) == SAID
    for token in logprobs.content:
        assert bytes(token.bytes or ()).decode() == token.token
        assert len(token.top) == 3
        assert token.top[0].token == token.token
        assert token.logprob <= 0
    assert ask("echo").choices[0].logprobs is None


@pytest.mark.parametrize("count", [-1, 21])
def test_more_top_logprobs_than_it_has_are_rejected(count: int) -> None:
    assert isinstance(Call("echo", logprobs=True, top_logprobs=count).error(), ProviderRejected)


def test_a_search_is_cited() -> None:
    message = ask("echo", web_search_options={}).choices[0].message

    assert message.annotations is not None
    assert message.annotations[0].url_citation.end_index == len(SAID)


# --- Tools and structure ------------------------------------------------------------------------------

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "time"}},
]


def test_it_calls_a_tool_with_valid_arguments_and_then_answers() -> None:
    first = ask("echo", tools=TOOLS)
    calls = first.choices[0].message.tool_calls
    assert calls is not None
    assert first.choices[0].finish_reason == "tool_calls"
    jsonschema.validate(json.loads(calls[0].function.arguments), WEATHER)

    history = [
        {"role": "user", "content": SAID},
        {"role": "assistant", "tool_calls": [{"id": calls[0].id, "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"},
    ]
    assert said("echo", tools=TOOLS, messages=history) == SAID


@pytest.mark.parametrize(
    ("fields", "called"),
    [
        ({"tool_choice": "none"}, []),
        ({"tool_choice": "required"}, ["weather"]),
        ({"tool_choice": {"type": "function", "function": {"name": "time"}}}, ["time"]),
        ({"parallel_tool_calls": True}, ["weather", "time"]),
        ({"parallel_tool_calls": False}, ["weather"]),
    ],
)
def test_the_choice_of_tools_is_honoured(fields: dict[str, Any], called: list[str]) -> None:
    calls = ask("echo", tools=TOOLS, **fields).choices[0].message.tool_calls

    assert [call.function.name for call in calls or []] == called


def test_a_tool_that_is_not_there_cannot_be_chosen() -> None:
    choice = {"type": "function", "function": {"name": "other"}}

    assert isinstance(Call("echo", tools=TOOLS, tool_choice=choice).error(), ProviderRejected)


def test_a_legacy_function_is_called() -> None:
    answer = ask("echo", functions=[{"name": "weather", "parameters": WEATHER}])

    assert answer.choices[0].finish_reason == "function_call"
    called = answer.choices[0].message.function_call
    assert called is not None
    jsonschema.validate(json.loads(called.arguments), WEATHER)


def test_an_answer_follows_its_schema() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}}

    jsonschema.validate(json.loads(said("words", response_format=schema) or ""), WEATHER)


def test_an_answer_is_an_object_when_asked() -> None:
    answer = json.loads(said("words", response_format={"type": "json_object"}) or "")

    assert isinstance(answer, dict)


def test_what_it_lacks_is_refused() -> None:
    prompt = make(prompt_logprobs=1)

    with pytest.raises(UnsupportedOption) as raised:
        require_options(prompt, SimulatorBackend.lacks)

    assert raised.value.param == "prompt_logprobs"


# --- Models that talk otherwise -----------------------------------------------------------------------


def test_paced_keeps_its_pace() -> None:
    call = Call("paced-10x50").run()

    assert sum(isinstance(event, TextDelta) for event in call.events) == 10
    assert call.slept == [0.02] * 11


def test_as_fast_as_it_goes_still_lets_others_live() -> None:
    call = Call("paced-100x0").run()

    assert set(call.slept) == {0}
    assert len(call.slept) >= 5


def test_a_refusal_is_no_text() -> None:
    message = ask("refusal").choices[0].message

    assert message.refusal
    assert message.content is None


def test_filtered_says_so() -> None:
    answer = ask("filtered")

    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "content_filter"
