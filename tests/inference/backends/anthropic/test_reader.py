"""The `anthropic` backend: a Messages stream as events, and counted tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from gateway_site.api.errors import BackendBusy, BackendFailed, ProviderRejected
from gateway_site.http_client.client import Client
from gateway_site.http_client.sse import SseDecoder
from inference.backends.anthropic.reader import MessagesReader
from inference.backends.conversation import encode_json
from inference.events import (
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tests.inference.backends.harness import HASTY, anthropic_backend, collect
from tests.inference.backends.upstreams.faulty.bodies import record
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream


def read(*happenings: Any, alerts: Any = None) -> Any:
    reader = MessagesReader(alert=(alerts if alerts is not None else []).append, credential="")
    stream = b"".join(record(one, event=one["type"]) for one in happenings)
    events = [event for one in SseDecoder().feed(stream) for event in reader.feed(one)]
    return events + reader.end()


START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 2,
            "output_tokens": 1,
        },
    },
}
STOP = {"type": "message_stop"}
# What is known of the request before its answer.
FIRST = Usage(42, 0, cached_tokens=30, cache_write_tokens=2)


def block(index: Any, content: Any) -> Any:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: Any, **fields: Any) -> Any:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def closed(index: Any) -> Any:
    return {"type": "content_block_stop", "index": index}


def ended(reason: Any = "end_turn", **usage: Any) -> Any:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 9}}


def test_it_works() -> None:
    assert read(
        START,
        block(0, {"type": "thinking", "thinking": "", "signature": ""}),
        {"type": "ping"},
        delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="EqQB"),
        closed(0),
        block(1, {"type": "text", "text": ""}),
        delta(1, type="text_delta", text="Hello"),
        closed(1),
        block(2, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}),
        delta(2, type="input_json_delta", partial_json=""),
        delta(2, type="input_json_delta", partial_json='{"a"'),
        delta(2, type="input_json_delta", partial_json=": 1}"),
        closed(2),
        block(3, {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}),
        closed(3),
        ended("tool_use"),
        STOP,
    ) == [
        FIRST,
        ReasoningDelta(0, "hm"),
        TextDelta(0, "Hello"),
        ToolCallStart(0, 0, "toolu_1", "f"),
        ToolCallArguments(0, 0, '{"a"'),
        ToolCallArguments(0, 0, ": 1}"),
        ToolCallStart(0, 1, "toolu_2", "g"),
        ToolCallArguments(0, 1, "{}"),
        Finish(0, "tool_calls"),
        Usage(42, 9, cached_tokens=30, cache_write_tokens=2),
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_reasons(said: Any, reason: Any) -> None:
    assert Finish(0, reason) in read(START, delta(0, text="x"), ended(said), STOP)


def test_what_is_new_is_ignored() -> None:
    events = read(
        START,
        {"type": "from_the_future"},
        block(0, {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}),
        delta(0, type="input_json_delta", partial_json='{"query"'),
        delta(1, text="x"),
        ended(),
        STOP,
    )

    assert events[:2] == [FIRST, TextDelta(0, "x")]


def test_cut_off_before_its_reason_is_a_failure() -> None:
    with pytest.raises(BackendFailed) as failure:
        read(START, delta(0, text="x"))

    assert not failure.value.is_free


def test_the_count_at_the_start_never_stands_for_the_whole() -> None:
    assert read(START, delta(0, text="x"), {**ended(), "usage": None}, STOP) == [
        FIRST,
        TextDelta(0, "x"),
        Finish(0, "stop"),
    ]
    assert read(START, delta(0, text="x"), STOP) == [FIRST, TextDelta(0, "x"), Finish(0, "stop")]
    alerts: list[str] = []
    assert read(START, delta(0, text="x"), ended(input_tokens=10), STOP, alerts=alerts) == [
        FIRST,
        TextDelta(0, "x"),
        Finish(0, "stop"),
    ]
    assert alerts == ["not plain counts"]


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": "9"}])
def test_a_server_that_counts_at_the_end_is_not_believed_before(usage: Any) -> None:
    start = {"type": "message_start", "message": {"id": "msg_1", "usage": usage}}

    assert read(start, delta(0, text="x"), ended(input_tokens=7, output_tokens=2), STOP) == [
        TextDelta(0, "x"),
        Finish(0, "stop"),
        Usage(7, 2),
    ]


def test_cache_writes_and_searches_are_told_apart() -> None:
    figures = {
        "input_tokens": 300_000,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 9_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 8_000, "ephemeral_1h_input_tokens": 1_000},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
    }
    start = {"type": "message_start", "message": {"id": "msg_1", "usage": {**figures, "output_tokens": 1}}}
    counted = Usage(
        309_000,
        0,
        cached_tokens=0,
        cache_write_tokens=8_000,
        cache_write_1h_tokens=1_000,
        web_searches=2,
    )

    events = read(start, delta(0, text="x"), ended(), STOP)

    assert events[0] == counted
    assert events[-1] == structs.replace(counted, completion_tokens=9)


def test_more_cache_writes_for_an_hour_than_in_all_are_cut_and_told() -> None:
    alerts: list[str] = []
    figures = {"cache_creation": {"ephemeral_1h_input_tokens": 5}, "output_tokens": 9}

    events = read(START, delta(0, text="x"), ended(**figures), STOP, alerts=alerts)

    assert events[-1] == Usage(42, 9, cached_tokens=30, cache_write_tokens=0, cache_write_1h_tokens=2)
    assert alerts == ["a detail does not fit its whole"]


@pytest.mark.parametrize("figure", [-1, 1.5, "9", True, 2**70])
@pytest.mark.parametrize("name", ["input_tokens", "cache_read_input_tokens", "output_tokens"])
def test_a_figure_that_is_no_count_is_told_and_not_used(name: Any, figure: Any) -> None:
    alerts: list[str] = []
    figures = {"output_tokens": 9, name: figure}

    events = read(START, delta(0, text="x"), ended(**figures), STOP, alerts=alerts)

    assert events == [FIRST, TextDelta(0, "x"), Finish(0, "stop")]
    assert alerts == ["not plain counts"]


def test_an_overloaded_provider_is_busy_and_free() -> None:
    collected = collect("anthropic", "error_first")

    assert isinstance(collected.error, BackendBusy)
    assert collected.error.is_free


def test_json_instead_of_a_stream() -> None:
    collected = collect("anthropic", "json")

    assert collected.text == "Hello wörld, this is"
    assert collected.usage == Usage(11, 5, cached_tokens=0, cache_write_tokens=0)


def test_tools_through_the_wire() -> None:
    collected = collect("anthropic", "ok_tools")

    assert [start.name for start in collected.of(ToolCallStart)] == ["weather", "time"]
    assert (
        "".join(event.text for event in collected.of(ToolCallArguments) if event.call == 0)
        == '{"city": "Köln"}'
    )


# --- Counting ---------------------------------------------------------------------------------------


def count(model: Any) -> Any:
    async def encode(body: Mapping[str, Any]) -> bytes:
        return encode_json(body)

    async def run() -> Any:
        async with FaultyUpstream() as upstream, Client(HASTY) as client:
            body = {"model": model, "messages": [{"role": "user", "content": "Hi"}] * 3}
            backend = anthropic_backend(client, upstream)
            return await backend.count_tokens(body, encode), upstream.last.path

    return asyncio.run(run())


def test_counting_tokens() -> None:
    assert count("ok") == (21, "/v1/messages/count_tokens")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("400", ProviderRejected),
        ("500_empty", BackendFailed),
        ("html", BackendFailed),
        ("json_error", BackendFailed),
    ],
)
def test_counting_fails_as_generating_does(fault: Any, error: Any) -> None:
    with pytest.raises(error):
        count(fault)
