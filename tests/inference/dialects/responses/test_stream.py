"""A client reads a response as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.responses._responses import ResponseStreamState

from gateway_site.api.errors import BackendBusy, BackendFailed
from inference.dialects.responses.writer import ResponseInfo, ResponseWriter
from inference.events import (
    Annotation,
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
    WebSearch,
)
from tests.inference.dialects.chat.sdk import cut
from tests.inference.dialects.responses.events import answers
from tests.inference.dialects.responses.sdk import (
    INFO,
    QUESTION,
    SUMMARY,
    body_of,
    client_that_reads,
    payloads,
    read_events,
    read_json,
    stream_of,
)

# The SDK makes its types when it first needs them, and checks every event against all of them.
FEW = settings(deadline=None, max_examples=40)
GOLDEN = Path(__file__).parents[2] / "golden"
STOP = [Finish(0, "stop"), Usage(1, 1)]
HELLO = [TextDelta(0, ""), TextDelta(0, "He"), TextDelta(0, "llo"), *STOP]
THOUGHT = [ReasoningDelta(0, "thi"), ReasoningDelta(0, "nk"), TextDelta(0, "A"), *STOP]
GOLDENS: list[tuple[str, ResponseInfo, list[Any]]] = [
    ("text", INFO, HELLO),
    ("refusal", INFO, [RefusalDelta(0, "No"), RefusalDelta(0, "."), *STOP]),
    (
        "function_call",
        INFO,
        [
            ToolCallStart(0, 0, "call_1", "f"),
            ToolCallArguments(0, 0, '{"a":'),
            ToolCallArguments(0, 0, "1}"),
            Finish(0, "tool_calls"),
            Usage(1, 1),
        ],
    ),
    ("reasoning_text", INFO, THOUGHT),
    ("reasoning_summary", SUMMARY, THOUGHT),
    (
        "web_search",
        INFO,
        [
            WebSearch(0, "q"),
            TextDelta(0, "See site."),
            Annotation(0, "https://example.invalid/", "T", 4, 8),
            *STOP,
        ],
    ),
    ("incomplete", INFO, [TextDelta(0, "He"), Finish(0, "length"), Usage(1, 1)]),
]


def failed_stream(events: list[Any], error: Any) -> bytes:
    writer = ResponseWriter(INFO)
    begun = b"".join(writer.write(event) for event in events)
    return begun + writer.fail(error)


def test_it_works() -> None:
    client = client_that_reads(iter([stream_of(HELLO)]), "text/event-stream")

    with client.responses.stream(**QUESTION) as stream:
        assert stream.get_final_response().output_text == "Hello"


@pytest.mark.parametrize(("name", "info", "events"), GOLDENS, ids=[row[0] for row in GOLDENS])
def test_events_are_those_that_the_sdks_were_seen_to_accept(
    name: str, info: ResponseInfo, events: list[Any]
) -> None:
    golden = (GOLDEN / f"responses_{name}.sse").read_bytes()

    assert payloads(stream_of(events, info)) == payloads(golden)


def test_a_failure_under_way_ends_as_in_the_golden_streams() -> None:
    error = payloads((GOLDEN / "responses_error_nested.sse").read_bytes())
    failed = payloads((GOLDEN / "responses_failed.sse").read_bytes())

    written = payloads(failed_stream([TextDelta(0, "")], BackendFailed("x")))

    assert written[:2] == error[:2]
    assert {**written[2], "error": None} == {
        **error[2],
        "error": None,
        "code": "backend_failed",
        "message": "x",
        "param": None,
    }
    assert error[2]["error"].keys() <= written[2]["error"].keys()
    assert {**written[3], "sequence_number": 2} == failed[2]


def test_a_failure_under_way_is_raised_by_the_client() -> None:
    with pytest.raises(openai.APIError) as raised:
        read_events([failed_stream(HELLO[:2], BackendFailed())])

    assert raised.value.code == "backend_failed"


def test_a_failed_response_has_what_was_said_until_then() -> None:
    *_, last = payloads(failed_stream(HELLO[:2], BackendBusy()))

    (message,) = last["response"]["output"]
    assert last["response"]["error"]["code"] == "rate_limit_exceeded"
    assert message["status"] == "incomplete"
    assert message["content"][0]["text"] == "He"


@pytest.mark.slow
@FEW
@given(answers(), st.lists(st.integers(0, 4000)), st.sampled_from([INFO, SUMMARY]))
def test_cut_at_any_byte_it_says_what_the_json_answer_says(
    events: list[Event], positions: list[int], info: ResponseInfo
) -> None:
    whole = read_json(body_of(events, info))

    read = read_events(cut(stream_of(events, info), positions))

    assert read[-1].response.to_dict() == whole.to_dict()
    assert read[-1].type == f"response.{whole.status}"
    assert [event.sequence_number for event in read] == list(range(len(read)))


@pytest.mark.slow
@FEW
@given(answers(), st.sampled_from([INFO, SUMMARY]))
def test_the_sdk_accumulates_what_the_json_answer_says(events: list[Event], info: ResponseInfo) -> None:
    whole = read_json(body_of(events, info))
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)

    for event in read_events([stream_of(events, info)]):
        state.handle_event(event)

    done = state._completed_output
    assert [done[position].to_dict() for position in sorted(done)] == [
        item.to_dict() for item in whole.output
    ]
    for position, item in enumerate(whole.output):
        grown = state._output_items[position]
        if item.type == "function_call":
            assert grown.arguments == item.arguments
        if item.type == "message":
            assert [getattr(part, "text", None) for part in grown.content] == [
                getattr(part, "text", None) for part in item.content
            ]
    if whole.status == "completed":
        assert state._completed_response.to_dict(exclude_unset=True)["id"] == whole.id


@FEW
@given(answers(), st.sampled_from([INFO, SUMMARY]))
def test_the_deltas_of_every_part_add_up_to_it(events: list[Event], info: ResponseInfo) -> None:
    """What the SDK leaves to others: refusals, thoughts, citations."""
    grown: dict[Any, str] = {}
    cited: dict[Any, list[Any]] = {}

    for event in payloads(stream_of(events, info)):
        position = (event.get("output_index"), event.get("content_index", event.get("summary_index")))
        if event["type"].endswith(".delta"):
            grown[position] = grown.get(position, "") + event["delta"]
        if event["type"] == "response.output_text.annotation.added":
            cited.setdefault(position, []).append(event["annotation"])
            assert event["annotation_index"] == len(cited[position]) - 1
        if event["type"].endswith("part.done"):
            part = event["part"]
            assert grown.get(position, "") == part.get("text", part.get("refusal"))
            assert cited.get(position, []) == part.get("annotations", [])


@FEW
@given(answers())
def test_no_reader_of_lines_can_cut_a_record(events: list[Event]) -> None:
    lines = stream_of(events).decode().splitlines()

    assert all(line == "" or line.startswith(("event: ", "data: ")) for line in lines)


def test_no_delta_can_cut_its_record() -> None:
    broken = "a\u2028b\u2029c\u0085d\x0be\x1ef\rg\nh"
    events = [
        ReasoningDelta(0, broken),
        TextDelta(0, broken),
        TextDelta(0, broken),
        ToolCallStart(0, 0, "call_1", broken, broken),
        Finish(0, "stop"),
    ]

    stream = stream_of(events)

    assert len(stream.decode().splitlines()) == stream.count(b"\n")
    assert read_events([stream])[-1].response.output_text == broken * 2


def test_cut_at_every_byte_it_says_the_same() -> None:
    stream = stream_of([TextDelta(0, "é漢\u2028"), TextDelta(0, "😀\u0085"), *STOP])

    for position in range(0, len(stream), 41):
        assert read_events(cut(stream, [position]))[-1].response.output_text == "é漢\u2028😀\u0085"
    assert read_events(cut(stream, range(len(stream))))[-1].response.output_text == "é漢\u2028😀\u0085"


def test_calls_whose_arguments_come_in_turns_stay_apart() -> None:
    events = [
        ToolCallStart(0, 0, "call_1", "f"),
        ToolCallStart(0, 1, "call_2", "g", "{"),
        ToolCallArguments(0, 0, "{"),
        ToolCallArguments(0, 1, "}"),
        ToolCallArguments(0, 0, "}"),
        Finish(0, "tool_calls"),
    ]

    calls = read_events([stream_of(events)])[-1].response.output

    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("call_1", "f", "{}"),
        ("call_2", "g", "{}"),
    ]
    assert len({call.id for call in calls}) == 2


def test_a_call_is_cut_short_and_the_one_before_it_is_whole() -> None:
    events = [
        ToolCallStart(0, 0, "call_1", "f", "{}"),
        ToolCallStart(0, 1, "call_2", "g", '{"a'),
        Finish(0, "length"),
    ]

    last = payloads(stream_of(events))[-1]

    assert last["type"] == "response.incomplete"
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]


def test_a_filtered_answer_is_incomplete_and_says_why() -> None:
    last = payloads(stream_of([TextDelta(0, "x"), Finish(0, "content_filter")]))[-1]

    assert last["response"]["incomplete_details"] == {"reason": "content_filter"}


def test_calls_of_one_id_can_still_be_answered_one_by_one() -> None:
    events = [
        ToolCallStart(0, 0, "call_1", "f", "{}"),
        ToolCallStart(0, 1, "call_1", "f", "{}"),
        ToolCallStart(0, 2, "", "f", "{}"),
        Finish(0, "tool_calls"),
    ]

    output = read_events([stream_of(events)])[-1].response.output

    assert len({call.call_id for call in output}) == 3
    assert all(call.call_id for call in output)


def test_a_citation_counts_from_the_start_of_its_own_text() -> None:
    events = [
        TextDelta(0, "abcd"),
        ToolCallStart(0, 0, "call_1", "f", "{}"),
        TextDelta(0, "efgh"),
        Annotation(0, "https://e.com/", "E", 5, 7),
        Finish(0, "stop"),
    ]

    messages = [item for item in json.loads(body_of(events))["output"] if item["type"] == "message"]

    (citation,) = messages[1]["content"][0]["annotations"]
    assert (citation["start_index"], citation["end_index"]) == (1, 3)


def test_nothing_said_is_an_empty_output() -> None:
    last = read_events([stream_of([Finish(0, "stop")])])[-1]

    assert last.response.output == []
    assert last.response.output_text == ""
    assert last.response.usage is None


def test_reasoning_is_sealed_when_it_is_done_and_only_on_demand() -> None:
    sealing = msgspec.structs.replace(INFO, seal=lambda thoughts: f"sealed {thoughts}")

    events = payloads(stream_of(THOUGHT, sealing))

    added, done = (
        next(event["item"] for event in events if event["type"] == f"response.output_item.{moment}")
        for moment in ("added", "done")
    )
    assert "encrypted_content" not in added
    assert done["encrypted_content"] == "sealed think"
    assert events[-1]["response"]["output"][0] == done
    assert b"encrypted_content" not in stream_of(THOUGHT)


def test_names_with_formatting_characters_stay_as_they_are() -> None:
    info = msgspec.structs.replace(INFO, model="100%s\u2028{0}", id='resp_a"%d')

    events = payloads(stream_of(HELLO, info))

    assert {event["response"]["model"] for event in events if "response" in event} == {"100%s\u2028{0}"}
    assert {event["item_id"] for event in events if "item_id" in event} == {'msg_a"%d'}


def test_an_event_that_no_response_can_write_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="int"):
        ResponseWriter(INFO).add(1)  # type: ignore[arg-type]
