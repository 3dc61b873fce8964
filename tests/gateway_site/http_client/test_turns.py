"""What a pass of the event loop handles of answers that come faster than they can be handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
import uvloop

from gateway_site.http_client.client import SLICE_BYTES, Client, Timeouts
from gateway_site.http_client.turns import Turns
from tests.gateway_site.http_client.raw_server import Peer, RawServer
from tests.inference.backends.harness import hello, openai_backend
from tests.inference.backends.upstreams.hostile.answers import flood, flood_in_chunks, word

FLOODS = 20
PASSES = 300


async def once_asked(peer: Peer, attack: Any) -> None:
    if await peer.next_request():
        await attack(peer)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("attack", [flood, flood_in_chunks])
def test_a_pass_of_the_loop_handles_a_slice_of_one_answer(run: Callable[..., Any], attack: Any) -> None:
    async def most_in_a_pass() -> tuple[int, int]:
        events_by_pass = [0]

        async def read(server: Any) -> None:
            backend = openai_backend(client, server)
            async with aclosing(backend.generate(hello(), model="m", dispatch=dispatch)) as events:
                async for _ in events:
                    events_by_pass[-1] += 1

        async with RawServer(lambda peer: once_asked(peer, attack)) as server, Client(Timeouts()) as client:
            reading = [asyncio.create_task(read(server)) for _ in range(FLOODS)]
            while len(events_by_pass) < PASSES or sum(events_by_pass) < 1000:
                await asyncio.sleep(0)
                events_by_pass.append(0)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return max(events_by_pass), sum(events_by_pass)

    async def dispatch() -> None:
        return None

    most, handled = run(most_in_a_pass())

    # Every other answer may besides have sent one read that is too short to wait for a turn.
    assert handled >= 1000
    assert most <= SLICE_BYTES // len(word()) * 3


def test_turns_are_given_one_for_each_pass_in_order_and_not_to_cancelled_tasks() -> None:
    async def given() -> list[tuple[int, str]]:
        turns = Turns(asyncio.get_running_loop())
        passes, seen = 0, list[tuple[int, str]]()

        async def take(name: str) -> None:
            for _ in range(2):
                await turns.next()
                seen.append((passes, name))

        tasks = {name: asyncio.create_task(take(name)) for name in "abc"}
        await asyncio.sleep(0)
        tasks["b"].cancel()
        while len(seen) < 4:
            await asyncio.sleep(0)
            passes += 1
        return seen

    seen = asyncio.run(given())

    assert [name for _, name in seen] == ["a", "c", "a", "c"]
    assert len({number for number, _ in seen}) == 4
