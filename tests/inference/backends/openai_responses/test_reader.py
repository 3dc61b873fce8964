"""The `openai` backend with the api `responses`: what a server says, as events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_site.api.errors import BackendBusy, BackendFailed, ProviderRejected
from gateway_site.http_client.client import Client
from gateway_site.http_client.sse import SseDecoder
from gateway_site.http_client.ssrf_guard import parse_base_url
from gateway_site.quickstart import llama_server
from gateway_site.quickstart import local_model as keeper
from gateway_site.quickstart.local_model import LocalModel
from inference.backends.base import nothing_to_mark
from inference.backends.openai_responses.backend import OpenAIResponsesBackend
from inference.backends.openai_responses.reader import ResponsesReader
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
from inference.prompt import Sampling, TextPart, Turn
from tests.harness.live_server import free_port
from tests.inference.backends.harness import CREDENTIAL, hello
from tests.inference.backends.upstreams.faulty.bodies import record

GOLDEN = Path(__file__).parents[2] / "golden"
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def reader_of(alerts: Any = None, **options: Any) -> ResponsesReader:
    return ResponsesReader(
        alert=(alerts if alerts is not None else []).append, credential=CREDENTIAL, **options
    )


def read_bytes(stream: bytes, *, size: int = 1 << 20, **options: Any) -> list[Event]:
    reader, decoder = reader_of(**options), SseDecoder()
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    events = [event for chunk in chunks for one in decoder.feed(chunk) for event in reader.feed(one)]
    return events + reader.end()


def read(*happenings: Any, **options: Any) -> list[Event]:
    return read_bytes(b"".join(map(record, happenings)), **options)


def completed(status: str = "completed", usage: Any = USAGE, **fields: Any) -> dict[str, Any]:
    response = {"status": status, "output": [], "usage": usage, **fields}
    return {"type": f"response.{status}", "response": response}


def delta(text: str, item: str = "msg_1", **fields: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": item, "delta": text, **fields}


def added(item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": item, **fields}


def done(item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item, **fields}


def call(id: str, name: str, arguments: str = "") -> dict[str, Any]:
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "call_id": id,
        "name": name,
        "arguments": arguments,
    }


# --- What comes back ----------------------------------------------------------------------------------

EXPECTED: dict[str, list[Event]] = {
    "text": [TextDelta(0, "He"), TextDelta(0, "llo"), Finish(0, "stop")],
    "refusal": [RefusalDelta(0, "No"), RefusalDelta(0, "."), Finish(0, "stop")],
    "incomplete": [TextDelta(0, "He"), Finish(0, "length")],
    "reasoning_text": [
        ReasoningDelta(0, "thi"),
        ReasoningDelta(0, "nk"),
        TextDelta(0, "A"),
        Finish(0, "stop"),
    ],
    "reasoning_summary": [
        ReasoningDelta(0, "thi"),
        ReasoningDelta(0, "nk"),
        TextDelta(0, "A"),
        Finish(0, "stop"),
    ],
    "function_call": [
        ToolCallStart(0, 0, "call_1", "f"),
        ToolCallArguments(0, 0, '{"a":'),
        ToolCallArguments(0, 0, "1}"),
        Finish(0, "tool_calls"),
    ],
    "web_search": [
        WebSearch(0, "q"),
        TextDelta(0, "See site."),
        Annotation(0, "https://example.invalid/", "T", 4, 8),
        Finish(0, "stop"),
    ],
}


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("name", list(EXPECTED))
def test_the_golden_streams_however_they_are_cut(name: str, size: int) -> None:
    golden = (GOLDEN / f"responses_{name}.sse").read_bytes()
    collected = [json.loads(line[6:]) for line in golden.splitlines() if line.startswith(b"data: {")]
    used = collected[-1]["response"]["usage"]

    *events, usage = read_bytes(golden, size=size)

    assert events == EXPECTED[name]
    assert isinstance(usage, Usage)
    assert (usage.prompt_tokens, usage.completion_tokens) == (used["input_tokens"], used["output_tokens"])


def test_the_details_of_usage() -> None:
    details = {
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 1, "audio_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 1},
    }

    events = read(delta("x"), completed(usage={**USAGE, **details}))

    assert events[-1] == Usage(
        3,
        2,
        cached_tokens=1,
        cache_write_tokens=1,
        reasoning_tokens=1,
        audio_input_tokens=1,
        audio_output_tokens=1,
    )


@pytest.mark.parametrize("usage", [{"input_tokens": -1, "output_tokens": True}, "many", {}, None])
def test_usage_that_cannot_be_true_is_not_told(usage: Any) -> None:
    alerts: list[str] = []

    events = read(delta("x"), completed(usage=usage), alerts=alerts)

    assert events == [TextDelta(0, "x"), Finish(0, "stop")]
    assert bool(alerts) == (usage is not None)


def test_calls_that_interleave_without_a_place() -> None:
    def piece(id: str, text: str) -> dict[str, Any]:
        return {"type": "response.function_call_arguments.delta", "item_id": f"fc_{id}", "delta": text}

    events = read(
        added(call("a", "f")), added(call("b", "g")), piece("b", "{}"), piece("a", "[]"), completed()
    )

    assert events[:4] == [
        ToolCallStart(0, 0, "a", "f"),
        ToolCallStart(0, 1, "b", "g"),
        ToolCallArguments(0, 1, "{}"),
        ToolCallArguments(0, 0, "[]"),
    ]


def test_what_was_not_said_piece_by_piece_is_said_when_it_is_done() -> None:
    message = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]}

    events = read(done(message, output_index=0), done(call("a", "f", "{}"), output_index=1), completed())

    assert events[:3] == [TextDelta(0, "Hi"), ToolCallStart(0, 0, "a", "f"), ToolCallArguments(0, 0, "{}")]


def test_a_search_whose_words_come_late_is_told_once() -> None:
    bare = {"type": "web_search_call", "id": "ws_1"}
    action = {"type": "search", "queries": ["q"]}
    page = {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "https://a"}}

    events = read(added(bare), done({**bare, "action": action}), done(page), delta("x"), completed())

    assert [event for event in events if isinstance(event, WebSearch)] == [WebSearch(0, "q")]


def test_citations_count_from_the_start_of_the_answer() -> None:
    cited = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 2}
    citation = {"type": "response.output_text.annotation.added", "item_id": "msg_2", "annotation": cited}

    events = read(delta("12345"), delta("ab", "msg_2"), citation, completed())

    assert events[2] == Annotation(0, "https://a.example", "", 5, 7)


def test_parts_of_a_summary_are_paragraphs() -> None:
    kind = "response.reasoning_summary_text.delta"
    pieces = [
        {"type": kind, "item_id": "rs_1", "summary_index": index, "delta": text}
        for index, text in ((0, "a"), (0, "b"), (1, "c"))
    ]

    collected = [event.text for event in read(*pieces, completed()) if isinstance(event, ReasoningDelta)]

    assert "".join(collected) == "ab\n\nc"


def test_a_whole_answer_although_a_stream_was_asked_for() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    whole = {"object": "response", "status": "completed", "error": None, "output": [message], "usage": USAGE}

    reader = reader_of()

    assert reader.feed_whole(json.dumps(whole).encode()) == [
        TextDelta(0, "Hi"),
        Finish(0, "stop"),
        Usage(3, 2),
    ]
    assert reader.end() == []


def test_what_filters_cut_and_what_a_silent_server_cut() -> None:
    filtered = completed("incomplete", incomplete_details={"reason": "content_filter"})

    assert read(delta("x"), filtered)[1] == Finish(0, "content_filter")
    assert read(delta("x"), completed(), silent_bound=2)[1] == Finish(0, "length")
    assert read(delta("x"), completed(), silent_bound=3)[1] == Finish(0, "stop")


# --- What goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["failed", "error_nested"])
def test_a_failure_before_anything_was_said_is_free(name: str) -> None:
    with pytest.raises(BackendFailed) as caught:
        read_bytes((GOLDEN / f"responses_{name}.sse").read_bytes())

    assert caught.value.is_free


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": "rate_limit_exceeded", "message": "x"}, BackendBusy),
        ({"code": "invalid_prompt", "message": "x"}, ProviderRejected),
        ({"code": 400, "message": "x"}, ProviderRejected),
        ("nonsense", BackendFailed),
        (None, BackendFailed),
    ],
)
def test_failures_by_their_codes(error: Any, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        read(completed("failed", usage=None, error=error))


def test_an_error_with_its_fields_at_the_top() -> None:
    with pytest.raises(ProviderRejected) as caught:
        read({"type": "error", "code": "invalid_prompt", "message": f"no {CREDENTIAL}", "param": None})

    assert CREDENTIAL not in str(caught.value.message)


@pytest.mark.parametrize(
    "before", [[delta("x")], [added({"type": "reasoning", "id": "rs_1"})]], ids=["text", "hidden thoughts"]
)
def test_a_failure_after_work_began_is_not_free(before: Any) -> None:
    with pytest.raises(BackendFailed) as caught:
        read(*before, completed("failed", usage=None, error={"code": "rate_limit_exceeded"}))

    assert not caught.value.is_free


def test_a_failure_that_reports_tokens_is_not_free() -> None:
    with pytest.raises(BackendFailed) as caught:
        read(completed("failed", error={"code": "server_error"}))

    assert not caught.value.is_free


@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_stream_without_its_end_failed(name: str) -> None:
    golden = (GOLDEN / f"responses_{name}.sse").read_bytes()
    cut = golden[: golden.rindex(b"event: response.") if b"event: " in golden else golden.rindex(b"data: {")]

    for stream in (cut, cut + b"data: [DONE]\n\n"):
        with pytest.raises(BackendFailed):
            read_bytes(stream)


@pytest.mark.parametrize(
    "happening",
    [
        completed("cancelled"),
        {"type": "response.completed", "response": None, "error": {"message": "x"}, "status": 7},
        added({"type": "function_call", "id": "fc_1"}),
    ],
)
def test_nonsense_is_a_failure(happening: Any) -> None:
    with pytest.raises(BackendFailed):
        read(happening)


def test_strange_shapes_are_passed_over() -> None:
    events = read(
        {"type": "response.new_thing", "delta": {"a": 1}, "item": "x", "response": []},
        delta("", item_id=["x"]),
        {"type": "response.output_text.delta", "delta": 5, "output_index": {}},
        added({"type": "new_item", "id": 5}),
        {"type": "response.output_text.annotation.added", "annotation": {"type": "file_citation"}},
        {"type": "response.function_call_arguments.delta", "item_id": "mcp_1", "delta": "{}"},
        delta("x"),
        completed(),
    )

    assert events == [TextDelta(0, "x"), Finish(0, "stop"), Usage(3, 2)]


# --- A real server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[LocalModel]:
    with keeper.running(preferred_port=free_port()) as local:
        yield local


@pytest.mark.slow
@pytest.mark.skipif(llama_server.missing_part() is not None, reason="the `local` extra is not installed")
@pytest.mark.parametrize(
    ("words", "reason"), [("What is the capital of France?", "stop"), ("Write a long story.", "length")]
)
def test_a_real_server(running: LocalModel, words: str, reason: str) -> None:
    async def generate() -> list[Event]:
        async with Client() as client:
            backend = OpenAIResponsesBackend(
                client, name="local", base_url=parse_base_url(running.base_url), server="llama.cpp"
            )
            prompt = hello(
                turns=(
                    Turn(role="system", content="You answer questions."),
                    Turn(role="user", content="Hi"),
                    Turn(role="assistant", content="Hello."),
                    Turn(role="user", content=(TextPart(words),)),
                ),
                output_bound=30,
                sampling=Sampling(temperature=0),
            )
            found = backend.generate(prompt, model=llama_server.MODEL_ID, dispatch=nothing_to_mark)
            return [event async for event in found]

    events = asyncio.run(generate())

    *said, finish, usage = events
    assert said
    assert all(isinstance(event, TextDelta) for event in said)
    assert finish == Finish(0, reason)  # type: ignore[arg-type]
    assert isinstance(usage, Usage)
    assert usage.prompt_tokens > 10
    assert 0 < usage.completion_tokens <= 30
    if reason == "stop":
        assert "Paris" in "".join(event.text for event in said if isinstance(event, TextDelta))
