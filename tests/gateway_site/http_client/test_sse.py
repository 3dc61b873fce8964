"""Server-sent events: the same records however the network cuts them, and nothing without a bound."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.http_client.sse import ServerSentEvent, SseDecoder, StreamTooLarge

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


def events_of(stream: bytes, cuts: list[int] | None = None) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    edges = [0, *sorted(cuts or []), len(stream)]
    return [event for start, end in itertools.pairwise(edges) for event in decoder.feed(stream[start:end])]


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[ServerSentEvent]]:
    """A stream written every way that the format allows, and the records that it means."""
    stream, expected = b"", []
    if draw(st.booleans()):
        stream += b"\xef\xbb\xbf"
    for _ in range(draw(st.integers(0, 6))):
        event, lines = draw(TEXT), draw(st.lists(TEXT, max_size=3))
        written = [b"event: " + event.encode()] if event else []
        written += [b"data: " + line.encode() for line in lines]
        written += draw(st.sampled_from([[], [b": ping"], [b"retry: 1"], [b"id: 7"], [b"unknown"]]))
        line_end = draw(LINE_ENDS)  # one for the record: CR and then LF would be a single end
        stream += b"".join(line + line_end for line in [*written, b""])
        if lines:
            expected.append(ServerSentEvent(event, "\n".join(lines).encode()))
    return stream, expected


def test_it_works() -> None:
    assert events_of(b'data: {"a": 1}\n\ndata: [DONE]\n\n') == [("", b'{"a": 1}'), ("", b"[DONE]")]


@pytest.mark.slow
@given(streams(), st.data())
def test_chunks_cut_at_any_byte_give_the_same_events(case: Any, data: Any) -> None:
    stream, expected = case
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))

    assert events_of(stream, cuts) == expected
    assert events_of(stream, list(range(len(stream)))) == expected


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_cr_and_lf_end_a_line(separator: Any) -> None:
    data = f'{{"text": "a{separator}b"}}'.encode()

    assert events_of(b"data: " + data + b"\n\n") == [("", data)]


def test_a_comment_or_an_event_without_data_is_skipped() -> None:
    assert events_of(b": ping\n\nevent: ping\n\nretry: 5\n\n\n\n") == []


def test_an_event_without_its_blank_line_is_dropped() -> None:
    assert events_of(b"data: whole\n\ndata: cut") == [("", b"whole")]


def test_the_space_after_the_colon_is_optional_and_only_one_is_dropped() -> None:
    assert events_of(b"data:a\ndata:  b\n\n") == [("", b"a\n b")]


@pytest.mark.parametrize("chunk", [1, 700, 65536])
def test_an_event_over_its_bound_is_refused_before_it_is_complete(chunk: Any) -> None:
    decoder = SseDecoder(max_event_bytes=100_000)
    for _ in range(100_000 // chunk):
        decoder.feed(b"x" * chunk)

    with pytest.raises(StreamTooLarge):
        decoder.feed(b"x" * chunk)


def test_a_complete_event_over_its_bound_is_refused() -> None:
    with pytest.raises(StreamTooLarge):
        SseDecoder(max_event_bytes=100).feed(b"data: " + b"x" * 200 + b"\n\n")


def test_the_whole_stream_is_bounded() -> None:
    decoder = SseDecoder(max_stream_bytes=900)
    for _ in range(100):
        decoder.feed(b"data: x\n\n")

    with pytest.raises(StreamTooLarge):
        decoder.feed(b"data: x\n\n")


@pytest.mark.slow
def test_hostile_shapes_take_linear_time() -> None:
    started = time.process_time()
    dripping, many_lines = SseDecoder(), SseDecoder()

    for _ in range(300_000):
        dripping.feed(b"x")
    many_lines.feed(b"data:\n" * 170_000 + b"\n")

    assert time.process_time() - started < 3
