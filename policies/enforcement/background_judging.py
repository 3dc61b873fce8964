"""
Judging off the path: for monitoring policies, when the request they watch has long gone on.

It takes few of the judge's places, so that requests which wait for a verdict do not wait behind it. When more
comes in than it can judge, what is too much is recorded as not judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.judging import Panel
from policies.enforcement.publication_cache import reader
from policies.judges import current_judge
from policies.verdicts.records import Record
from policies.verdicts.writer import writer

logger = logging.getLogger(__name__)

PLACES = 4
MAX_TEXTS = 2_000
MAX_CHARACTERS = 32 * 1024 * 1024


class Background:
    def __init__(self) -> None:
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        # The loop itself holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()
        self._characters = 0

    def judge(self, panel: Panel, record: Record, versions: Sequence[AttachedVersion], text: str) -> None:
        """Have the text judged when there is time. Never waits."""
        if not versions:
            return
        if len(self._tasks) >= MAX_TEXTS or self._characters + len(text) > MAX_CHARACTERS:
            logger.warning("a text was not judged for %d monitoring policies: too many wait", len(versions))
            record.note_skipped(versions, "overload")
            return
        self._characters += len(text)
        task = asyncio.get_running_loop().create_task(self._judge(panel, record, list(versions), text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, seconds: float) -> None:
        """Finish what the running loop has begun; what takes longer is recorded as not judged."""
        loop = asyncio.get_running_loop()
        mine = {task for task in self._tasks if task.get_loop() is loop}
        if mine:
            _, late = await asyncio.wait(mine, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _judge(self, panel: Panel, record: Record, versions: list[AttachedVersion], text: str) -> None:
        left = list(versions)
        try:
            async with self._place():
                # One after the other, so that this takes one of the judge's places and no more.
                for version in versions:
                    record.note([await panel.ask(version, text)])
                    left.remove(version)
        except asyncio.CancelledError:
            record.note_skipped(left, "shutdown")
            raise
        finally:
            self._characters -= len(text)

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._places.setdefault(loop, asyncio.Semaphore(PLACES))


background = Background()


async def leave(seconds: float) -> None:
    """What a serving process does with its policies before it ends."""
    await background.drain(seconds)
    await current_judge().close()
    await asyncio.to_thread(writer.close, seconds)
    await asyncio.to_thread(reader.close, seconds)
