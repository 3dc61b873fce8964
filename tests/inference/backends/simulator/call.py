"""One call of the simulator, with what was seen of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from gateway_site.api.errors import ApiError
from inference.backends.simulator.backend import SimulatorBackend
from inference.dialects.chat import parse
from inference.events import Event
from inference.prompt import Prompt
from inference.tokenizer import CountTokens

SAID = "one two three four five six"


def count_words(text: str) -> int:
    return len(text.split())


def make(**fields: Any) -> Prompt:
    messages = fields.pop("messages", [{"role": "user", "content": fields.pop("said", SAID)}])
    return parse.parse(json.dumps({"model": "m", "messages": messages, **fields}).encode()).prompt


class Call:
    def __init__(self, model: str, *, count: CountTokens = count_words, **fields: Any) -> None:
        self.slept: list[float] = []
        self.dispatched = 0
        self.events: list[Event] = []
        self.backend = SimulatorBackend(count, sleep=self._sleep)
        self._generation = self.backend.generate(make(**fields), model=model, dispatch=self._dispatch)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    async def _dispatch(self) -> None:
        self.dispatched += 1

    async def _collect(self, limit: float) -> None:
        async with asyncio.timeout(limit), aclosing(self._generation) as events:
            async for event in events:
                self.events.append(event)

    def run(self, limit: float = 5) -> Call:
        asyncio.run(self._collect(limit))
        return self

    def error(self, limit: float = 5) -> BaseException:
        with pytest.raises((ApiError, TimeoutError)) as raised:
            self.run(limit)
        return raised.value
