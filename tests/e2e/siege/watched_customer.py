"""The customer whose requests must not notice: a chat every so often, whole and streamed, each timed."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from tests.e2e.siege.raw_http import chat_body, exchange, json_request

EVERY_SECONDS = 0.1
# Longer than any bound that the product promises.
PATIENCE_SECONDS = 30.0
NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One chat: when it began, how long until its last byte, and its status (0 where there was none)."""

    started: float
    seconds: float
    status: int
    is_whole: bool

    @property
    def ended(self) -> float:
        return self.started + self.seconds


class WatchedCustomer:
    """Asks at a steady rate, whether or not earlier answers have come, so that no wait hides others."""

    def __init__(self, port: int, key: str) -> None:
        self.samples: list[Sample] = []
        self._port = port
        self._requests = [
            json_request("/v1/chat/completions", key, chat_body("siege/fast", stream=stream))
            for stream in (False, True)
        ]

    async def go_on(self, seconds: float) -> None:
        started = time.monotonic()
        asked = set()
        for number in itertools.count():
            due = started + number * EVERY_SECONDS
            if due >= started + seconds:
                break
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            asked.add(asyncio.create_task(self._ask(self._requests[number % 2])))
        await asyncio.gather(*asked)

    async def _ask(self, request: bytes) -> None:
        started = time.monotonic()
        is_whole = False
        try:
            answer = await exchange(self._port, request, PATIENCE_SECONDS)
            status = answer.status
            ending = answer.content.rstrip()
            is_whole = status == 200 and (ending.endswith(b"}") or b"data: [DONE]" in ending)
        except (OSError, TimeoutError):
            status = NO_ANSWER
        self.samples.append(Sample(started, time.monotonic() - started, status, is_whole))
