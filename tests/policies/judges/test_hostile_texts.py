"""A customer sends a text that is costly to normalize or to search. The event loop goes on."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from policies.judges import Inconclusive, Judge
from policies.judges.logprob import LogprobJudge
from policies.judges.quoted import QuotedJudge
from tests.policies.judges.judge_server import JudgeServer

RULE = 'Does the text contain "internal only"?'
TICK_SECONDS = 0.005
# Far more than a loaded machine adds, and far less than one call over such a text takes.
LONGEST_PAUSE_SECONDS = 0.5


async def score_beside_ticks(judge: Judge, text: str) -> tuple[float | None, float]:
    """The score, None if inconclusive; and the longest time for which the event loop did not run."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            longest = max(longest, time.monotonic() - before)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    try:
        score = await judge.score(RULE, text)
    except Inconclusive:
        score = None
    await asyncio.sleep(0)
    ticking.cancel()
    return score, longest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e" + "\u0301\u0316" * 100_000 + " internal only", 1.0),
        ("e" + "\u0301\u0316" * 100_000, 0.0),
        ("\ufdfa" * 1_000_000, None),
        (" \u3000" * 2_000_000 + "internal" + " \t" * 100_000 + "only", 1.0),
        ("words and\u00e4 words " * 200_000 + "internal only", 1.0),
        ("a\r\n \n" * 800_000 + "inter\n\nnal only", 1.0),
        ("\u200b" * 3_000_000 + "internal" + "\u200b" * 100_000 + " only", 1.0),
    ],
    ids=["marks-phrase", "marks", "expanding", "spaces", "words", "line-ends", "invisible"],
)
def test_a_costly_text_is_judged_or_refused_while_the_event_loop_runs(
    text: str, expected: float | None
) -> None:
    score, longest = asyncio.run(score_beside_ticks(QuotedJudge(), text))

    assert score == expected
    assert longest < LONGEST_PAUSE_SECONDS


def test_a_short_text_of_marks_is_judged_at_once() -> None:
    """On the event loop, so it must be a matter of milliseconds."""
    score, longest = asyncio.run(score_beside_ticks(QuotedJudge(), "e" + "\u0301\u0316" * 8_000))

    assert score == 0.0
    assert longest < LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("character", ["\ufdfa", "\ufdfb", "\u3316"])
def test_a_text_that_has_some_expanding_characters_is_judged(character: str) -> None:
    text = f"{character} and words \n" * 2_000

    assert asyncio.run(QuotedJudge().score(RULE, text)) == 0.0
    assert asyncio.run(QuotedJudge().score(RULE, f"{text}internal only")) == 1.0


def test_a_model_is_asked_about_a_large_text_while_the_event_loop_runs() -> None:
    server = JudgeServer()
    text = 'a "quoted\u200b" word\n' * 30_000

    async def run() -> tuple[float | None, float]:
        async with server:
            judge = LogprobJudge(base_url=server.base_url, model="guard")
            try:
                return await score_beside_ticks(judge, text)
            finally:
                await judge.close()

    score, longest = asyncio.run(run())

    assert score is not None
    assert longest < LONGEST_PAUSE_SECONDS
    shown = text + "\n\n" + text.replace("\u200b", "")
    assert json.loads(server.bodies[0]["messages"][1]["content"]) == shown
