"""A client meets the models that fail on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from gateway_site.api.errors import (
    ApiError,
    BackendBusy,
    BackendError,
    BackendFailed,
    BackendUnreachable,
    ProviderRejected,
    UnsupportedOption,
)
from inference.backends.base import nothing_to_mark
from inference.backends.simulator import backend as simulator
from inference.backends.simulator.backend import SimulatorBackend
from inference.events import Event, Finish, TextDelta, Usage
from tests.inference.backends.simulator.call import SAID, Call, count_words, make

TOOLS = [{"type": "function", "function": {"name": "f"}}]

FAILURES: list[tuple[str, type[BaseException], int, bool]] = [
    ("fails-refused", BackendUnreachable, 0, True),
    ("fails-rejected", ProviderRejected, 1, True),
    ("fails-busy", BackendBusy, 1, True),
    ("fails-500", BackendFailed, 1, True),
    ("fails-reset", BackendFailed, 1, False),
    ("unheard-of", ProviderRejected, 1, True),
]


@pytest.mark.parametrize(("model", "kind", "dispatched", "is_free"), FAILURES)
def test_it_fails_before_the_first_word(
    model: str, kind: type[BaseException], dispatched: int, is_free: bool
) -> None:
    call = Call(model)

    error = call.error()

    assert type(error) is kind
    assert isinstance(error, BackendError)
    assert error.is_free is is_free
    assert call.dispatched == dispatched
    assert call.events == []
    assert call.backend.running == 0


def test_501_from_upstream_is_501() -> None:
    assert isinstance(Call("fails-501").error(), UnsupportedOption)


def test_a_slow_one_answers_late() -> None:
    call = Call("fails-slow-30").run()

    assert call.slept[0] == 30
    assert isinstance(call.events[-1], Usage)


@pytest.mark.parametrize(("model", "words"), [("fails-hang", 0), ("fails-hang-midway", 3)])
def test_a_hanging_one_never_ends_and_lets_go_when_it_is_cancelled(model: str, words: int) -> None:
    call = Call(model)

    assert isinstance(call.error(limit=0.05), TimeoutError)

    assert len(call.events) == words
    assert call.backend.running == 0


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 1}, {"n": 2}, {"tools": TOOLS}])
def test_a_cut_one_never_finishes(fields: dict[str, Any]) -> None:
    call = Call("fails-cut-midway", **fields)

    error = call.error()

    assert isinstance(error, BackendFailed)
    assert not error.is_free
    assert call.events
    assert not any(isinstance(event, Finish | Usage) for event in call.events)


def test_closing_it_early_stops_it() -> None:
    async def read_two() -> tuple[int, int]:
        backend = SimulatorBackend(count_words)
        generation = backend.generate(make(), model="endless", dispatch=nothing_to_mark)
        async with aclosing(generation) as events:
            heard = 0
            async for _ in events:
                heard += 1
                if heard == 2:
                    running = backend.running
                    break
        return running, backend.running

    assert asyncio.run(read_two()) == (1, 0)


def test_nothing_starts_when_the_mark_cannot_be_made() -> None:
    async def refuse() -> None:
        raise ApiError("no database")

    async def collect() -> None:
        backend = SimulatorBackend(count_words)
        events: AsyncIterator[Event] = backend.generate(make(), model="echo", dispatch=refuse)
        async for _ in events:
            pytest.fail("a word before the mark")

    with pytest.raises(ApiError, match="no database"):
        asyncio.run(collect())


USAGES: list[tuple[str, list[Usage]]] = [
    ("usage-none", []),
    ("usage-garbage", []),
    ("usage-zero", [Usage(0, 0)]),
    ("usage-huge", [Usage(6, 2024)]),
    ("usage-falling", [Usage(6, 16), Usage(6, 6)]),
    ("usage-cached", [Usage(6, 6, cached_tokens=3, reasoning_tokens=0)]),
]


@pytest.mark.parametrize(("model", "reported"), USAGES)
def test_usage_is_reported_as_the_model_is_named(model: str, reported: list[Usage]) -> None:
    events = Call(model).run().events

    assert [event for event in events if isinstance(event, Usage)] == reported
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == SAID


def test_every_model_of_the_table_is_there() -> None:
    table = simulator.__doc__ or ""
    named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]

    assert set(simulator.BEHAVIOURS) <= set(named)
    for model in named:
        if not model.startswith("fails-"):
            assert Call(model).run().events
