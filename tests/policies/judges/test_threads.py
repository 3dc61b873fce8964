"""Large texts are prepared in threads that organizations take in turns and that can be stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gateway_site.api.bodies.checkpoints import Stopped, checkpoint
from policies.judges.threads import THREADS, run_in_thread

PATIENCE_SECONDS = 20


def test_a_question_that_is_given_up_stops_its_thread() -> None:
    started, ended = threading.Event(), threading.Event()

    def endless() -> None:
        started.set()
        try:
            while True:
                checkpoint()
        except Stopped:
            ended.set()
            raise

    async def run() -> None:
        task = asyncio.ensure_future(run_in_thread("acme", endless))
        assert await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, PATIENCE_SECONDS)

    asyncio.run(run())


def test_an_organization_with_many_large_texts_leaves_a_thread_for_others() -> None:
    release = threading.Event()

    async def run() -> None:
        many = [
            asyncio.ensure_future(run_in_thread("acme", release.wait, PATIENCE_SECONDS))
            for _ in range(THREADS + 1)
        ]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                assert await run_in_thread("rival", lambda: "answered") == "answered"
            assert not any(task.done() for task in many)
        finally:
            release.set()
        assert all(await asyncio.gather(*many))

    asyncio.run(run())
