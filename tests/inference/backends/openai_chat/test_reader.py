"""The `openai` backend: what a chat completion server says, as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway_site.api.errors import BackendBusy, BackendFailed, ProviderRejected
from gateway_site.http_client.sse import SseDecoder
from inference.backends.openai_chat.reader import ChatReader
from inference.events import (
    Annotation,
    Finish,
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
from tests.inference.backends.harness import CREDENTIAL, collect, hello
from tests.inference.backends.upstreams.faulty.bodies import record

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def chunk(delta: Any = None, *, index: Any = 0, reason: Any = None, **fields: Any) -> Any:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": reason, **fields}]}


def calls(*fragments: Any) -> Any:
    return chunk({"tool_calls": list(fragments)})


def read(*chunks: Any, completions: Any = 1, closes: Any = True, alerts: Any = None) -> Any:
    """The events of a stream of these chunks."""
    reader = ChatReader(
        completions=completions,
        alert=(alerts if alerts is not None else []).append,
        credential=CREDENTIAL,
    )
    stream = b"".join(map(record, chunks)) + (b"data: [DONE]\n\n" if closes else b"")
    events = [event for one in SseDecoder().feed(stream) for event in reader.feed(one)]
    return events + reader.end()


# --- What is said ---------------------------------------------------------------------------------


def test_it_works() -> None:
    assert read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hello"}),
        chunk({"content": " you"}),
        chunk(reason="stop"),
        {"choices": [], "usage": USAGE},
    ) == [TextDelta(0, "Hello"), TextDelta(0, " you"), Finish(0, "stop"), Usage(3, 2)]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_under_either_name(name: Any) -> None:
    assert read(chunk({name: "hm"}), chunk({"content": "x"}, reason="stop"))[0] == ReasoningDelta(0, "hm")


def test_reasoning_under_both_names_is_said_once() -> None:
    events = read(chunk({"reasoning": "hm", "reasoning_content": "hm"}), chunk(reason="stop"))

    assert events == [ReasoningDelta(0, "hm"), Finish(0, "stop")]


def test_a_refusal() -> None:
    assert read(chunk({"refusal": "No."}), chunk(reason="stop"))[0] == RefusalDelta(0, "No.")


def test_choices_interleave() -> None:
    events = read(
        chunk({"content": "a"}),
        chunk({"content": "b"}, index=1),
        chunk(index=1, reason="length"),
        chunk({"content": "c"}, reason="stop"),
        completions=2,
    )

    assert events == [
        TextDelta(0, "a"),
        TextDelta(1, "b"),
        Finish(1, "length"),
        TextDelta(0, "c"),
        Finish(0, "stop"),
    ]


def test_logprobs_travel_with_their_text() -> None:
    top = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105]}
    token = {**top, "top_logprobs": [top, {"token": "Yo", "logprob": -99999.0, "bytes": None}]}

    (event, *_) = read(chunk({"content": "Hi"}, logprobs={"content": [token]}), chunk(reason="stop"))

    tops = (TopLogprob("Hi", -0.1, (72, 105)), TopLogprob("Yo", -9999.0))
    assert event == TextDelta(0, "Hi", (TokenLogprob("Hi", -0.1, (72, 105), tops),))


def test_an_annotation() -> None:
    cited = {"url": "https://a.example", "title": "A", "start_index": 1, "end_index": 3}
    said = {"content": "see", "annotations": [{"type": "url_citation", "url_citation": cited}]}

    assert read(chunk(said), chunk(reason="stop"))[1] == Annotation(0, "https://a.example", "A", 1, 3)


def test_a_legacy_function_call() -> None:
    events = read(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": "{}"}}),
        chunk(reason="function_call"),
    )

    assert events == [FunctionCallStart(0, "f"), FunctionCallArguments(0, "{}"), Finish(0, "function_call")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("eos", "stop")],
)
def test_reasons_outside_the_five_become_one_of_them(said: Any, reason: Any) -> None:
    assert read(chunk({"content": "x"}, reason=said))[-1] == Finish(0, reason)


# --- Tool calls -------------------------------------------------------------------------------------


def fragment(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> Any:
    call = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {name: value for name, value in call.items() if value is not None}


TWO_CALLS = [
    ToolCallStart(0, 0, "a", "f"),
    ToolCallArguments(0, 0, '{"x":1}'),
    ToolCallStart(0, 1, "b", "g"),
    ToolCallArguments(0, 1, "{}"),
]


@pytest.mark.parametrize(
    "fragments",
    [
        [fragment(0, "a", "f", ""), fragment(0, arguments='{"x":1}'), fragment(1, "b", "g", "{}")],
        [fragment(1, "a", "f", '{"x":1}'), fragment(2, "b", "g", "{}")],
        [fragment(None, "a", "f", '{"x":1}'), fragment(None, "b", "g", "{}")],
        [fragment(None, "a", "f", ""), fragment(None, arguments='{"x":1}'), fragment(None, "b", "g", "{}")],
        [fragment(0, "a", "f", '{"x":1}'), fragment(0, "b", "g", "{}")],
        [fragment(0, "a", "f", ""), fragment(0, "a", "f", '{"x":1}'), fragment(1, "b", "g", "{}")],
        [fragment(0, "a"), fragment(0, None, "f", '{"x":1}'), fragment(1, "b", "g", "{}")],
        [fragment(0, "a", "f", {"x": 1}), fragment(1, "b", "g", {})],
    ],
    ids=[
        "as specified",
        "from 1",
        "no index",
        "no index in pieces",
        "always 0",
        "repeated",
        "late name",
        "objects",
    ],
)
@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_tool_calls_as_servers_write_them(fragments: Any, reason: Any) -> None:
    events = read(*(calls(one) for one in fragments), chunk(reason=reason))

    assert events == [*TWO_CALLS, Finish(0, "tool_calls")]


def test_calls_without_ids_get_ids_of_their_own() -> None:
    events = read(
        calls(fragment(None, None, "f", "{}"), fragment(None, None, "g", "{}")), chunk(reason="stop")
    )

    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [start.name for start in starts] == ["f", "g"]
    assert len({start.id for start in starts}) == 2
    assert all(start.id.startswith("call_") for start in starts)


def test_a_call_of_nothing_is_a_failure() -> None:
    with pytest.raises(BackendFailed):
        read(calls(fragment(0, "a", None, "{}")), chunk(reason="tool_calls"))


def test_tools_through_the_wire() -> None:
    collected = collect("openai", "ok_tools")

    assert [start.name for start in collected.of(ToolCallStart)] == ["weather", "time"]
    assert (
        "".join(event.text for event in collected.of(ToolCallArguments) if event.call == 0)
        == '{"city": "Köln"}'
    )
    assert collected.reasons == ["tool_calls"]


# --- How it ends ------------------------------------------------------------------------------------


def test_finished_without_done_is_whole() -> None:
    assert read(chunk({"content": "x"}), chunk(reason="stop"), closes=False)[-1] == Finish(0, "stop")


def test_done_without_finish_is_whole_when_something_was_said() -> None:
    assert read(chunk({"content": "x"})) == [TextDelta(0, "x"), Finish(0, "stop")]


@pytest.mark.parametrize(
    ("chunks", "completions", "closes"),
    [
        ([chunk({"content": "x"})], 1, False),
        ([], 1, True),
        ([chunk({"role": "assistant", "content": ""})], 1, True),
        ([chunk({"content": "x"}, reason="stop")], 2, True),
        ([chunk({"content": "x"}, reason="stop"), chunk({"content": "y"}, index=1)], 2, False),
    ],
    ids=["cut off", "nothing", "only a role", "a choice is missing", "a choice is cut off"],
)
def test_an_end_before_every_finish_is_a_failure(chunks: Any, completions: Any, closes: Any) -> None:
    with pytest.raises(BackendFailed) as failure:
        read(*chunks, completions=completions, closes=closes)

    assert not failure.value.is_free


def test_nothing_follows_a_finish() -> None:
    events = read(chunk({"content": "x"}, reason="stop"), chunk({"content": "late"}), chunk(reason="length"))

    assert events == [TextDelta(0, "x"), Finish(0, "stop")]


def test_nothing_is_read_after_done() -> None:
    reader = ChatReader(completions=1, alert=print, credential="")
    stream = record(chunk({"content": "x"}, reason="stop")) + record("[DONE]") + record("nonsense")

    events = [event for one in SseDecoder().feed(stream) for event in reader.feed(one)]

    assert events == [TextDelta(0, "x"), Finish(0, "stop")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 400, "message": "too long"}, ProviderRejected),
        ({"type": "invalid_request_error", "message": "too long"}, ProviderRejected),
        ({"code": 429}, BackendBusy),
        ({"code": 500}, BackendFailed),
        ("it broke", BackendFailed),
    ],
)
def test_an_error_record_in_place_of_an_answer_is_free(error: Any, expected: Any) -> None:
    with pytest.raises(expected) as failure:
        read({"error": error})

    assert type(failure.value) is expected
    assert failure.value.is_free


def test_an_error_record_in_the_older_form() -> None:
    with pytest.raises(ProviderRejected, match="too long"):
        read({"object": "error", "message": "too long", "code": 400})


def test_a_choice_that_was_not_asked_for_is_a_failure() -> None:
    assert isinstance(collect("openai", "wrong_index").error, BackendFailed)


def test_json_instead_of_a_stream() -> None:
    collected = collect("openai", "json", hello(completions=2))

    assert collected.text == "Hello wörld, this is" * 2
    assert collected.reasons == ["stop", "stop"]
    assert collected.usage == Usage(11, 10)


def test_bytes_one_at_a_time() -> None:
    assert collect("openai", "drip_bytes").text == "Hello wörld, this is"


# --- Usage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("fault", "usage", "alert"),
    [
        ("no_usage", None, None),
        ("usage_null", None, None),
        ("usage_zero", None, "zero for an answer that is not empty"),
        ("usage_zero_empty", (0, 0), None),
        ("usage_negative", None, "not plain counts"),
        ("usage_float", None, "not plain counts"),
        ("usage_string", None, "not plain counts"),
        ("usage_bool", None, "not plain counts"),
        ("usage_nan", None, "not plain counts"),
        ("usage_huge", None, "not plain counts"),
        ("usage_over_bound", (11, 1_000_000), None),
        ("usage_two", (11, 5), None),
        ("usage_shrinking", (11, 5), "it shrank"),
        ("no_done", (11, 5), None),
        ("no_finish", (11, 5), None),
        ("cumulative", (11, 20), None),
    ],
)
def test_usage_is_untrusted(kind: Any, fault: Any, usage: Any, alert: Any) -> None:
    collected = collect(kind, fault)

    assert collected.error is None
    assert collected.reasons == ["stop"]
    if kind == "anthropic" and usage is None and fault not in ("usage_null", "usage_zero"):
        usage = (11, 0)  # as reported before the answer, and nothing after it
    assert (collected.usage and (collected.usage.prompt_tokens, collected.usage.completion_tokens)) == usage
    assert collected.alerts == ([alert] if alert else [])


def test_a_total_that_is_not_the_sum_is_told_and_the_parts_are_used() -> None:
    collected = collect("openai", "usage_total")

    assert (collected.usage, collected.alerts) == (Usage(11, 5), ["the total is not the sum of its parts"])


def test_a_detail_larger_than_its_whole_is_cut_and_told() -> None:
    collected = collect("openai", "usage_cached")

    assert collected.usage == Usage(11, 5, cached_tokens=11)
    assert collected.alerts == ["a detail does not fit its whole"]


@pytest.mark.parametrize("writes", ["cache_write_tokens", "cache_creation_tokens"])
def test_details_of_usage(writes: str) -> None:
    details = {
        "prompt_tokens": 40,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 20, writes: 10, "audio_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 1},
    }

    events = read(chunk({"content": "x"}, reason="stop"), {"choices": [], "usage": {**USAGE, **details}})

    assert events[-1] == Usage(
        40,
        2,
        cached_tokens=20,
        cache_write_tokens=10,
        reasoning_tokens=1,
        audio_input_tokens=5,
        audio_output_tokens=1,
    )


def test_cached_audio_is_not_counted_twice() -> None:
    alerts: list[str] = []
    details = {"prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 3}}

    events = read(
        chunk({"content": "x"}, reason="stop"), {"choices": [], "usage": {**USAGE, **details}}, alerts=alerts
    )

    assert events[-1] == Usage(3, 2, cached_tokens=2, audio_input_tokens=1)
    assert alerts == ["a detail does not fit its whole"]


def test_running_usage_says_at_every_moment_what_was_generated() -> None:
    events = collect("openai", "cumulative", server="vllm").events
    spoken = 0
    for event in events:
        spoken += isinstance(event, TextDelta)
        if isinstance(event, Usage):
            assert event.completion_tokens == spoken


def test_usage_that_came_with_the_finish_is_said_again_after_it() -> None:
    events = read({**chunk({"content": "x"}), "usage": USAGE}, chunk(reason="stop"))

    assert events == [TextDelta(0, "x"), Usage(3, 2), Finish(0, "stop"), Usage(3, 2)]


def test_usage_from_before_the_last_words_does_not_stand_for_the_whole() -> None:
    events = read({**chunk({"content": "x"}), "usage": USAGE}, chunk({"content": "y"}, reason="stop"))

    assert events[-1] == Finish(0, "stop")


def test_deeply_nested_nonsense_is_a_failure() -> None:
    stream = json.dumps(chunk({"content": "x"}))[:-1] + ', "usage": ' + "[" * 100_000 + "]" * 100_000 + "}"

    with pytest.raises(BackendFailed):
        read(stream)
