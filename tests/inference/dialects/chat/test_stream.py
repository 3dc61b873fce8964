"""A client reads a chat completion as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.api.errors import BackendFailed
from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.response import ChatCompletionChunk
from inference.dialects.chat.stream import DONE
from inference.dialects.chat.writer import ChatWriter
from inference.events import (
    Annotation,
    Event,
    Finish,
    PromptLogprobs,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tests.inference.dialects.chat.events import answers
from tests.inference.dialects.chat.sdk import (
    INFO,
    body_of,
    cut,
    read_chunks,
    read_json,
    read_stream,
    stream_of,
    without_sdk_extras,
)

GOLDEN = Path(__file__).parents[2] / "golden"
WITH_USAGE = msgspec.structs.replace(INFO, include_usage=True)
HELLO = [TextDelta(0, ""), TextDelta(0, "He"), TextDelta(0, "llo"), Finish(0, "stop"), Usage(1, 2)]

GOLDENS: list[tuple[str, CompletionInfo, list[Any]]] = [
    ("chat_text", INFO, HELLO),
    ("chat_text_usage", WITH_USAGE, HELLO),
    ("chat_n2", INFO, [TextDelta(0, "x"), TextDelta(1, "y"), Finish(1, "stop"), Finish(0, "stop")]),
    (
        "chat_tools",
        INFO,
        [
            ToolCallStart(0, 0, "call_1", "f"),
            ToolCallArguments(0, 0, '{"a":1}'),
            ToolCallStart(0, 1, "call_2", "g", "{}"),
            Finish(0, "tool_calls"),
        ],
    ),
]


def payloads(stream: bytes) -> list[Any]:
    records = stream.split(b"\n\n")
    assert records.pop() == b"", "a stream ends with a blank line"
    data = [record.removeprefix(b"data: ") for record in records]
    return [json.loads(record) if record != b"[DONE]" else "[DONE]" for record in data]


def deltas(stream: bytes, index: int = 0) -> list[dict[str, Any]]:
    choices = [choice for chunk in payloads(stream)[:-1] for choice in chunk["choices"]]
    return [choice["delta"] for choice in choices if choice["index"] == index]


def test_it_works() -> None:
    assert read_stream([stream_of(HELLO)]).choices[0].message.content == "Hello"


@pytest.mark.parametrize(("name", "info", "events"), GOLDENS, ids=[row[0] for row in GOLDENS])
def test_records_are_those_that_the_sdks_were_seen_to_accept(
    name: str, info: CompletionInfo, events: list[Event]
) -> None:
    golden = (GOLDEN / f"{name}.sse").read_bytes()

    assert payloads(stream_of(events, info)) == payloads(golden)


def test_a_stream_that_fails_ends_as_in_the_golden_one() -> None:
    golden = payloads((GOLDEN / "chat_error.sse").read_bytes())

    written = payloads(
        stream_of(HELLO[:2])[: -len(DONE)] + ChatWriter(INFO, is_stream=True).fail(BackendFailed())
    )

    assert written[:2] == golden[:2]
    assert golden[2]["error"].keys() <= written[2]["error"].keys()
    assert len(written) == len(golden) == 3


def test_an_error_under_way_is_raised_by_the_client() -> None:
    stream = stream_of(HELLO[:2])[: -len(DONE)] + ChatWriter(INFO, is_stream=True).fail(BackendFailed())

    with pytest.raises(openai.APIError) as raised:
        read_stream([stream])

    assert raised.value.code == "backend_failed"


@pytest.mark.slow
@given(answers(), st.lists(st.integers(0, 4000)), st.booleans())
def test_cut_at_any_byte_it_says_what_the_json_answer_says(
    events: list[Event], positions: list[int], include_usage: bool
) -> None:
    info = msgspec.structs.replace(INFO, include_usage=include_usage)

    streamed = without_sdk_extras(read_stream(cut(stream_of(events, info), positions)))

    whole = without_sdk_extras(read_json(body_of(events, info)))
    if not include_usage:
        del whole["usage"]
    assert streamed == whole


@pytest.mark.slow
def test_cut_at_every_byte_it_says_the_same() -> None:
    events = [TextDelta(0, "é漢\u2028"), TextDelta(0, "😀\u0085"), Finish(0, "stop")]
    stream = stream_of(events)

    for position in range(len(stream)):
        assert read_stream(cut(stream, [position])).choices[0].message.content == "é漢\u2028😀\u0085"
    assert read_stream(cut(stream, range(len(stream)))).choices[0].message.content == "é漢\u2028😀\u0085"


@pytest.mark.slow
@given(answers(), st.booleans())
def test_every_record_is_a_chunk_of_the_documented_shape(events: list[Event], include_usage: bool) -> None:
    stream = stream_of(events, msgspec.structs.replace(INFO, include_usage=include_usage))

    *records, done = stream.removesuffix(b"\n\n").split(b"\n\n")

    assert done == b"data: [DONE]"
    for record in records:
        msgspec.json.decode(record.removeprefix(b"data: "), type=ChatCompletionChunk)


@pytest.mark.slow
@given(answers())
def test_no_reader_of_lines_can_cut_a_record(events: list[Event]) -> None:
    lines = stream_of(events).decode().splitlines()

    assert all(line == "" or line.startswith("data: ") for line in lines)


def test_no_delta_can_cut_its_record() -> None:
    broken = "a\u2028b\u2029c\u0085d\x0be\x1ef\rg\nh"
    events = [
        ReasoningDelta(0, broken),
        TextDelta(0, broken),
        TextDelta(0, broken),
        ToolCallStart(0, 0, "call_1", broken, broken),
        Finish(0, "stop"),
    ]

    stream = stream_of(events, msgspec.structs.replace(INFO, model=broken))

    assert len(stream.decode().splitlines()) == stream.count(b"\n")
    assert read_stream([stream]).choices[0].message.content == broken * 2


@pytest.mark.slow
@given(answers())
def test_each_choice_has_its_role_once_and_first_and_in_order(events: list[Event]) -> None:
    stream = stream_of(events)
    first_seen = list(
        dict.fromkeys(choice["index"] for chunk in payloads(stream)[:-1] for choice in chunk["choices"])
    )

    assert first_seen == sorted(first_seen)
    for index in first_seen:
        first, *later = deltas(stream, index)
        assert first["role"] == "assistant"
        assert not any("role" in delta for delta in later)


def test_a_backend_that_starts_with_the_second_choice_does_not_break_the_client() -> None:
    events = [TextDelta(1, "b"), TextDelta(0, "a"), Finish(0, "stop"), Finish(1, "stop")]

    read = read_stream([stream_of(events)])

    assert [choice.message.content for choice in read.choices] == ["a", "b"]
    assert [choice.message.role for choice in read.choices] == ["assistant", "assistant"]


def test_usage_is_sent_only_when_asked_and_last() -> None:
    plain, with_usage = payloads(stream_of(HELLO)), payloads(stream_of(HELLO, WITH_USAGE))

    assert not any("usage" in chunk for chunk in plain[:-1])
    *earlier, last, done = with_usage
    assert all(chunk["usage"] is None for chunk in earlier)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert done == "[DONE]"


def test_usage_that_comes_early_and_twice_is_sent_once_at_the_end() -> None:
    events = [TextDelta(0, "a"), Usage(1, 1), TextDelta(0, "b"), Finish(0, "stop"), Usage(1, 2)]

    *_, last, _done = payloads(stream_of(events, WITH_USAGE))

    assert last["usage"]["completion_tokens"] == 2
    assert read_stream([stream_of(events, WITH_USAGE)]).usage.completion_tokens == 2  # type: ignore[union-attr]


def test_without_known_usage_no_usage_is_made_up() -> None:
    stream = stream_of(HELLO[:-1], WITH_USAGE)

    assert all(chunk["choices"] for chunk in payloads(stream)[:-1])


def test_reasoning_is_left_out_when_the_client_does_not_want_it() -> None:
    events = [ReasoningDelta(0, "secret"), TextDelta(0, "a"), Finish(0, "stop")]
    quiet = msgspec.structs.replace(INFO, show_reasoning=False)

    assert b"secret" in stream_of(events)
    assert b"secret" in body_of(events)
    assert b"secret" not in stream_of(events, quiet)
    assert b"secret" not in body_of(events, quiet)


def test_a_choice_that_says_nothing_still_opens_and_ends() -> None:
    stream = stream_of([Finish(0, "content_filter")])

    assert deltas(stream) == [{"role": "assistant", "content": ""}]
    assert read_stream([stream]).choices[0].finish_reason == "content_filter"


def test_several_annotations_reach_the_client() -> None:
    cited = [Annotation(0, f"https://e.com/{position}", "E", 0, 1) for position in range(3)]

    read = read_stream([stream_of([TextDelta(0, "a"), *cited, Finish(0, "stop")])])

    urls = [note.url_citation.url for note in read.choices[0].message.annotations or []]
    assert urls == ["https://e.com/0", "https://e.com/1", "https://e.com/2"]


def test_prompt_logprobs_come_with_the_first_chunk() -> None:
    entries = (None, {"5": {"logprob": -1.5, "decoded_token": "\u2028"}})
    stream = stream_of([PromptLogprobs(entries), TextDelta(0, "a"), Finish(0, "stop")])

    assert payloads(stream)[0]["prompt_logprobs"] == [None, entries[1]]
    assert read_stream([stream]).choices[0].message.content == "a"


def test_names_with_formatting_characters_stay_as_they_are() -> None:
    info = CompletionInfo(
        id='a"%d', created=1, model="100%s\u2028{0}", system_fingerprint="fp", service_tier="flex"
    )

    chunks = read_chunks(stream_of(HELLO, info))

    assert {chunk["model"] for chunk in chunks} == {"100%s\u2028{0}"}
    assert {chunk["id"] for chunk in chunks} == {'a"%d'}
    assert chunks[0]["service_tier"] == "flex"
