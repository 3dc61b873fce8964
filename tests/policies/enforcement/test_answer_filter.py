"""An answer leaves as far as it was judged, and not one forbidden word of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_site.api.errors import ApiError, BackendFailed, JudgeUnavailable, PolicyViolation
from policies.enforcement.answer_filter import Transcript, filter_answer, release_after_check
from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.background_judging import background
from policies.enforcement.judging import score_cache
from policies.judges import Judge
from tests.policies.factories import PHRASE, noted
from tests.policies.fakes import Answer, FakeJudge, Piece, describe, request_policies, says, version

BOTH = pytest.mark.parametrize("is_streamed", [False, True], ids=["json", "sse"])
FILLER = "all is well and nothing is said. "


def read(
    answer: Answer, *versions: AttachedVersion, judge: Judge | None = None, is_streamed: bool = True
) -> tuple[list[Any], ApiError | None]:
    """What left, and what it ended with."""
    left: list[Any] = []

    async def run() -> ApiError | None:
        own = request_policies(*versions, judge=judge)
        try:
            events = filter_answer(answer.events(), policies=own, describe=describe, is_streamed=is_streamed)
            async with aclosing(events):
                async for event in events:
                    left.append(event)
        except ApiError as error:
            return error
        finally:
            await background.drain(10)
        return None

    return left, asyncio.run(run())


def texts(left: list[Piece | None]) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for piece in left:
        if piece is not None:
            found[piece[0]] = found.get(piece[0], "") + piece[1]
    return found


def pieces(text: str, size: int, key: Any = 0) -> list[Piece]:
    return [(key, text[start : start + size]) for start in range(0, len(text), size)]


@BOTH
def test_it_works(is_streamed: bool) -> None:
    good = Answer([*pieces(FILLER * 100, 7), None])
    left, error = read(good, version(), is_streamed=is_streamed)
    assert (left, error) == (good.pieces, None)

    bad = Answer(pieces(FILLER * 100 + PHRASE + FILLER * 100, 7))
    left, error = read(bad, version(), is_streamed=is_streamed)
    assert isinstance(error, PolicyViolation)
    assert bad.is_closed
    assert (FILLER * 100).startswith("".join(texts(left).values()))
    assert bool(left) is is_streamed
    if is_streamed:
        assert bad.taken < len(bad.pieces)


@pytest.mark.parametrize("where", [0, 1, 127, "reasoning", ("call", 0), ("call", 3), "refusal"])
@BOTH
def test_wherever_the_phrase_hides_it_is_found(where: Any, is_streamed: bool) -> None:
    """Interleaved with 128 other texts, a few letters at a time."""
    keys = [*(("other", number) for number in range(127)), where]
    told = dict.fromkeys(keys, FILLER) | {where: FILLER + PHRASE}
    longest = max(map(len, told.values()))
    answer = Answer(
        [(key, told[key][i : i + 3]) for i in range(0, longest, 3) for key in keys if told[key][i:]]
    )

    left, error = read(answer, version(), is_streamed=is_streamed)

    assert isinstance(error, PolicyViolation)
    assert PHRASE not in str(texts(left))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    before=st.integers(0, 1500),
    after=st.integers(0, 900),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
def test_however_it_is_cut_no_part_of_the_phrase_leaves(before: int, after: int, cuts: list[int]) -> None:
    clean = (FILLER * 50)[:before]
    text = clean + PHRASE + (FILLER * 50)[:after]
    told, at, turn = [], 0, 0
    while at < len(text):
        size = cuts[turn % len(cuts)]
        told.append((0, text[at : at + size]))
        at, turn = at + size, turn + 1

    left, error = read(Answer(told), version())

    assert isinstance(error, PolicyViolation)
    assert clean.startswith("".join(texts(left).values()))


def test_no_phrase_is_found_across_two_choices() -> None:
    answer = Answer([(0, "this is internal"), (1, "only a test")])

    assert read(answer, version()) == (answer.pieces, None)


@BOTH
def test_what_cannot_be_judged_does_not_leave(is_streamed: bool) -> None:
    answer = Answer(pieces(FILLER * 100, 50))

    left, error = read(answer, version(), judge=says(None), is_streamed=is_streamed)

    assert left == []
    assert isinstance(error, JudgeUnavailable)
    assert answer.is_closed


def test_without_policies_it_is_the_same_generator() -> None:
    async def run() -> None:
        events = Answer([]).events()
        for policies in ([], [version(direction="request")]):
            assert filter_answer(events, policies=request_policies(*policies), describe=describe) is events
        await events.aclose()

    asyncio.run(run())


def test_monitoring_holds_nothing_back_and_judges_afterwards() -> None:
    judge = says(1.0)
    answer = Answer([(0, "a"), None, (1, "b")])

    left, error = read(answer, version(mode="monitoring"), judge=judge)

    assert (left, error) == (answer.pieces, None)
    assert [text for _, text in judge.asked] == ["a\n---\nb"]
    (row,) = noted()
    assert (row.direction, row.mode, row.outcome, row.score) == ("response", "monitoring", "match", 1.0)


def test_a_monitored_answer_that_breaks_off_is_judged_as_far_as_it_came() -> None:
    judge = says(0.0)
    answer = Answer([(0, "half an ans")], failure=BackendFailed())

    left, error = read(answer, version(mode="monitoring"), judge=judge)

    assert isinstance(error, BackendFailed)
    assert left == answer.pieces
    assert [text for _, text in judge.asked] == ["half an ans"]


def test_a_failed_backend_discards_what_was_not_judged() -> None:
    left, error = read(Answer([(0, "unjudged")], failure=BackendFailed()), version())

    assert isinstance(error, BackendFailed)
    assert left == []


def test_an_answer_without_text_needs_no_judge() -> None:
    answer = Answer([None, (0, ""), None])

    assert read(answer, version(), judge=says(None)) == (answer.pieces, None)


def test_a_stream_is_judged_in_windows_and_recorded_once() -> None:
    judge = FakeJudge(lambda rule, text: 0.3 if len(text) < 1000 else 0.1)
    text = FILLER * 60

    left, error = read(Answer(pieces(text, 5)), version(), judge=judge)

    assert (texts(left)[0], error) == (text, None)
    judged = [asked for _, asked in judge.asked]
    assert 3 <= len(judged) <= 6
    assert all(text.startswith(each) for each in judged)
    assert judged[-1] == text
    (row,) = noted()
    # The window that came nearest to a match is what a lower threshold would have met.
    assert (row.score, row.judgements, row.outcome) == (0.3, len(judged), "no_match")


def test_a_long_answer_is_judged_a_few_dozen_times() -> None:
    judge = says(0.0)
    text = FILLER * 12_000  # nearly 400,000 characters

    left, error = read(Answer(pieces(text, 100)), version(), judge=judge)

    assert (texts(left)[0], error) == (text, None)
    assert len(judge.asked) < 80


def test_a_slow_stream_does_not_wait_for_a_full_window(monkeypatch: Any) -> None:
    monkeypatch.setattr("policies.enforcement.answer_filter.WINDOW_SECONDS", 0.05)
    transcript = Transcript()
    transcript.add(0, "a few words")
    assert not transcript.is_due(400)
    time.sleep(0.06)

    assert transcript.is_due(400)


def test_a_disconnect_stops_the_backend() -> None:
    answer = Answer(pieces(FILLER * 100, 50))

    async def run() -> None:
        events = filter_answer(answer.events(), policies=request_policies(version()), describe=describe)
        async for _ in events:
            break
        await events.aclose()

    asyncio.run(run())

    assert answer.is_closed
    assert answer.taken < len(answer.pieces)
    assert len(noted()) == 1


# --- a backend that starts while the request is judged ------------------------------------------------


async def _collect(check: Any, answer: Answer) -> list[Any]:
    return [event async for event in release_after_check(check, answer.events())]


def test_no_event_is_released_before_the_request_was_judged() -> None:
    order: list[str] = []
    answer = Answer([(0, "a"), (0, "b")])

    async def check() -> None:
        await asyncio.sleep(0.05)
        assert answer.taken == 1, "the backend was asked meanwhile"
        order.append("judged")

    async def run() -> None:
        async for _ in release_after_check(check, answer.events()):
            order.append("event")

    asyncio.run(run())
    assert order == ["judged", "event", "event"]
    assert answer.is_closed


def test_a_request_that_is_refused_stops_a_backend_that_has_said_nothing_yet() -> None:
    is_closed = []

    async def silent() -> Any:
        try:
            await asyncio.sleep(30)
            yield (0, "too late")
        finally:
            is_closed.append(True)

    async def run() -> None:
        own = request_policies(version())
        async for _ in release_after_check(lambda: own.check_request([PHRASE]), silent()):
            raise AssertionError

    started = time.monotonic()
    with pytest.raises(PolicyViolation):
        asyncio.run(run())
    assert is_closed == [True]
    assert time.monotonic() - started < 5


def test_a_refusal_wins_over_a_backends_failure() -> None:
    own = request_policies(version())
    score_cache.clear()

    async def check() -> None:
        await asyncio.sleep(0.02)
        await own.check_request([PHRASE])

    with pytest.raises(PolicyViolation):
        asyncio.run(_collect(check, Answer([], failure=BackendFailed())))

    async def fine() -> None: ...

    with pytest.raises(BackendFailed):
        asyncio.run(_collect(fine, Answer([], failure=BackendFailed())))
    assert asyncio.run(_collect(fine, Answer([]))) == []
