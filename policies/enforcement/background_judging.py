"""
Background judging, for monitoring policies: requests do not wait for it.

Its concurrency is a small part of the judge's, so that requests which wait for a verdict do not wait behind
it. When more comes in than it can judge, what is too much is recorded as not judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.judging import PolicyJudging
from policies.enforcement.publication_cache import publications
from policies.judges import current_judge
from policies.verdicts.records import VerdictRecorder
from policies.verdicts.writer import writer

logger = logging.getLogger(__name__)

CONCURRENCY = 4
MAX_TEXTS = 2_000
MAX_CHARACTERS = 32 * 1024 * 1024


class BackgroundJudging:
    """Texts that are judged when there is time, bounded in number and size."""

    def __init__(self) -> None:
        self._limits: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        # The loop itself holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()
        self._characters = 0

    def judge(
        self,
        judging: PolicyJudging,
        recorder: VerdictRecorder,
        versions: Sequence[AttachedVersion],
        text: str,
    ) -> None:
        """Have a text judged when there is time, without waiting for it."""
        if not versions:
            return
        if len(self._tasks) >= MAX_TEXTS or self._characters + len(text) > MAX_CHARACTERS:
            logger.warning("a text was not judged for %d monitoring policies: too many wait", len(versions))
            recorder.record_skipped(versions, "overload")
            return
        self._characters += len(text)
        task = asyncio.get_running_loop().create_task(self._judge(judging, recorder, list(versions), text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def running(self) -> int:
        """How many texts wait or are being judged."""
        return len(self._tasks)

    def forget(self) -> None:
        """Drop the texts of event loops that have ended."""
        self._tasks.clear()

    async def drain(self, seconds: float) -> None:
        """Finish what the running loop has begun; what takes longer than this is recorded as not judged."""
        loop = asyncio.get_running_loop()
        mine = {task for task in self._tasks if task.get_loop() is loop}
        if mine:
            _, late = await asyncio.wait(mine, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _judge(
        self, judging: PolicyJudging, recorder: VerdictRecorder, versions: list[AttachedVersion], text: str
    ) -> None:
        left = list(versions)
        try:
            async with self._concurrency_limit():
                # One after the other, so that a text has one question at a time at the judge.
                for version in versions:
                    recorder.record([await judging.judge(version, text)])
                    left.remove(version)
        except asyncio.CancelledError:
            recorder.record_skipped(left, "shutdown")
            raise
        finally:
            self._characters -= len(text)

    def _concurrency_limit(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._limits.setdefault(loop, asyncio.Semaphore(CONCURRENCY))


background = BackgroundJudging()


async def close_policies(seconds: float) -> None:
    """Finish the judging and recording of this process before it ends."""
    await background.drain(seconds)
    await current_judge().close()
    await asyncio.to_thread(writer.close, seconds)
    await asyncio.to_thread(publications.close, seconds)
