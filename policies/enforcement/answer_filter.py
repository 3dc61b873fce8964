"""
The filter that an answer passes on its way to the client, where policies apply to answers.

With an enforcing policy, events are held and released window by window, each after the whole answer so far
was judged: every choice, text, reasoning, refusal and tool call of it. The last characters that were judged
stay until the next window, so that the beginning of a phrase does not leave before its end is known. A match,
or a judge without a verdict, closes the backend's events and ends the answer with an error.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import aclosing
from typing import TypeVar

from django.conf import settings

from policies.enforcement.request_policies import RequestPolicies

Event = TypeVar("Event")
Describe = Callable[[Event], "tuple[Hashable, str] | None"]
CheckAnswer = Callable[[str], Awaitable[None]]

# A window also ends when it is this old: a slow model's words should not wait for a full one.
WINDOW_SECONDS = 1.0
# Windows grow with the answer, so that judging all of it again and again stays in proportion to its length.
GROWTH = 8
# The part of a window that stays until the next one was judged.
HELD_BACK = 4
# Between texts that are not one: no phrase is found across it.
BOUNDARY = "\n---\n"


def filter_answer(
    events: AsyncGenerator[Event, None],
    *,
    policies: RequestPolicies,
    describe: Describe[Event],
    is_streamed: bool = True,
    check_answer: CheckAnswer | None = None,
) -> AsyncGenerator[Event, None]:
    """
    The events of an answer, as far as its policies let them pass; without any, the very same generator.

    `describe` says which text an event adds to, by any key, and what; None for an event without text. An
    answer that is not streamed is judged once, at its end. `check_answer` takes the place of that of the
    policies, for a caller who has to know of a refusal before the events are closed for it.
    """
    if policies.blocks_response:
        window = settings.GATEWAY_JUDGE_WINDOW_CHARACTERS if is_streamed else None
        return _enforced(events, policies, describe, window, check_answer or policies.check_answer)
    if policies.has_response_policies:
        return _monitored(events, policies, describe)
    return events


async def release_after_check(
    check: Callable[[], Awaitable[None]], events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """The events of a backend that starts while the request is judged, released after the verdict."""
    judged = asyncio.ensure_future(check())
    first = asyncio.ensure_future(anext(events, None))
    try:
        await asyncio.wait({judged, first}, return_when=asyncio.FIRST_COMPLETED)
        await judged  # also when the backend failed first: a refusal is the better answer
        event = await first
        if event is None:
            return
        yield event
        async for event in events:
            yield event
    finally:
        for task in (judged, first):
            task.cancel()
        await asyncio.gather(judged, first, return_exceptions=True)
        await events.aclose()


async def _monitored(
    events: AsyncGenerator[Event, None], policies: RequestPolicies, describe: Describe[Event]
) -> AsyncGenerator[Event, None]:
    transcript = Transcript()
    try:
        async with aclosing(events):
            async for event in events:
                if text := describe(event):
                    transcript.add(*text)
                yield event
    finally:
        policies.end_answer(transcript.text())


async def _enforced(
    events: AsyncGenerator[Event, None],
    policies: RequestPolicies,
    describe: Describe[Event],
    window: int | None,
    check_answer: CheckAnswer,
) -> AsyncGenerator[Event, None]:
    transcript = Transcript()
    held: deque[tuple[int, Event]] = deque()
    try:
        async with aclosing(events):
            async for event in events:
                if text := describe(event):
                    transcript.add(*text)
                held.append((transcript.length, event))
                if window is not None and transcript.is_due(window):
                    await check_answer(transcript.text())
                    for released in _up_to(transcript.mark_judged(window), held):
                        yield released
            if transcript.has_unjudged:
                await check_answer(transcript.text())
            for _, event in held:
                yield event
    finally:
        policies.end_answer(transcript.text())


def _up_to(length: int, held: deque[tuple[int, Event]]) -> Iterator[Event]:
    while held and held[0][0] <= length:
        yield held.popleft()[1]


class Transcript:
    """The texts of an answer so far, and how much of them was judged."""

    def __init__(self) -> None:
        self.length = 0
        self._texts: dict[Hashable, list[str]] = {}
        self._judged_length = 0
        self._unjudged_since = 0.0
        self._grown: set[Hashable] = set()

    @property
    def has_unjudged(self) -> bool:
        return self.length > self._judged_length

    def add(self, key: Hashable, text: str) -> None:
        if not text:
            return
        if not self.has_unjudged:
            self._unjudged_since = time.monotonic()
        self.length += len(text)
        self._grown.add(key)
        self._texts.setdefault(key, []).append(text)

    def text(self) -> str:
        return BOUNDARY.join("".join(parts) for parts in self._texts.values())

    def is_due(self, window: int) -> bool:
        unjudged = self.length - self._judged_length
        if unjudged >= max(window * len(self._grown), self._judged_length // GROWTH):
            return unjudged > 0
        return unjudged > 0 and time.monotonic() - self._unjudged_since >= WINDOW_SECONDS

    def mark_judged(self, window: int) -> int:
        """Mark all of it as judged, and return the length up to which it may be released."""
        # For each text that is still growing, since each may end in half of a phrase.
        held_back = (window // HELD_BACK) * max(1, len(self._grown))
        self._judged_length = self.length
        self._grown.clear()
        return self.length - held_back
