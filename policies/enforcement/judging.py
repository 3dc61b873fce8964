"""
Putting the questions of many policies about one text to the judge.

All at once, as many at a time as the judge bears, within one deadline for all of them together. What was
asked before about the same text is not asked again: agents send their history with every turn, and clients
repeat what failed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from django.conf import settings
from msgspec import Struct

from policies.enforcement.attachment import AttachedVersion
from policies.judges import Inconclusive, Judge, current_judge

MAX_REMEMBERED = 20_000
CHARACTERS_HASHED_AT_ONCE = 64 * 1024


class Finding(Struct, frozen=True):
    """What the judge said about one policy. No score: inconclusive, with a word for why."""

    version: AttachedVersion
    score: float | None
    latency_ms: int = 0
    reason: str = ""

    @property
    def is_match(self) -> bool:
        return self.score is not None and self.version.is_match(self.score)


class Memory:
    """Scores by (version, judge, digest of the text). Inconclusive ones are asked again."""

    def __init__(self) -> None:
        self._scores: OrderedDict[tuple[uuid.UUID, str, bytes], float] = OrderedDict()

    def recall(self, key: tuple[uuid.UUID, str, bytes]) -> float | None:
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def keep(self, key: tuple[uuid.UUID, str, bytes], score: float) -> None:
        self._scores[key] = score
        if len(self._scores) > MAX_REMEMBERED:
            self._scores.popitem(last=False)

    def forget(self) -> None:
        self._scores.clear()


memory = Memory()
_bounds: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Panel:
    """The judge as one organization reaches it."""

    def __init__(self, organization_id: uuid.UUID, judge: Judge | None = None) -> None:
        self._judge = judge or current_judge()
        self._salt = salt_of(organization_id)

    @property
    def judge_name(self) -> str:
        return self._judge.name

    async def ask_all(self, versions: Sequence[AttachedVersion], text: str) -> list[Finding]:
        """
        What the judge says for each, in this order; those that it says nothing for in time are inconclusive.

        The first match ends it, since nothing more can follow from the others: they are left out.
        """
        digest = await _digest_of(text)
        known = {version.version_id: self._recalled(version, digest) for version in versions}
        if not any(finding is not None and finding.is_match for finding in known.values()):
            unknown = [version for version in versions if known[version.version_id] is None]
            asked = await self._ask_each(unknown, text, digest)
            known |= {finding.version.version_id: finding for finding in asked}
        return [finding for version in versions if (finding := known[version.version_id]) is not None]

    async def ask(self, version: AttachedVersion, text: str) -> Finding:
        """For one, with the deadline for itself alone."""
        try:
            async with asyncio.timeout(settings.GATEWAY_JUDGE_SECONDS):
                digest = await _digest_of(text)
                return self._recalled(version, digest) or await self._ask(version, text, digest)
        except TimeoutError:
            return Finding(version, None, 1000 * settings.GATEWAY_JUDGE_SECONDS, "deadline")

    async def _ask_each(self, versions: Sequence[AttachedVersion], text: str, digest: bytes) -> list[Finding]:
        started = time.monotonic()
        tasks = [asyncio.ensure_future(self._ask(version, text, digest)) for version in versions]
        try:
            await _settled(tasks, settings.GATEWAY_JUDGE_SECONDS)
            is_matched = any(task.done() and task.result().is_match for task in tasks)
            waited_ms = round(1000 * (time.monotonic() - started))
            return [
                task.result() if task.done() else Finding(version, None, waited_ms, "deadline")
                for version, task in zip(versions, tasks, strict=True)
                if task.done() or not is_matched
            ]
        finally:
            await _end(tasks)

    def _recalled(self, version: AttachedVersion, digest: bytes) -> Finding | None:
        score = memory.recall((version.version_id, self._judge.name, digest))
        return None if score is None else Finding(version, score)

    async def _ask(self, version: AttachedVersion, text: str, digest: bytes) -> Finding:
        async with _bound():
            started = time.monotonic()
            score: float | None = None
            reason = ""
            try:
                score = _checked(await self._judge.score(version.rule, text, salt=self._salt))
            except Inconclusive as inconclusive:
                reason = inconclusive.reason[:60]
            latency_ms = round(1000 * (time.monotonic() - started))
        if score is not None:
            memory.keep((version.version_id, self._judge.name, digest), score)
        return Finding(version, score, latency_ms, reason)


def _checked(score: float) -> float:
    if not 0.0 <= score <= 1.0:  # nor is NaN
        raise Inconclusive("garbage")
    return score


def salt_of(organization_id: uuid.UUID) -> str:
    """Words that only this organization's questions begin with, and that tell nobody whose they are."""
    secret = settings.SECRET_KEY.encode()
    return hmac.digest(secret, b"judge " + organization_id.bytes, hashlib.sha256).hex()[:32]


def _bound() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    bound = _bounds.get(loop)
    if bound is None:
        bound = _bounds[loop] = asyncio.Semaphore(settings.GATEWAY_JUDGE_CONCURRENCY)
    return bound


async def _digest_of(text: str) -> bytes:
    if len(text) > CHARACTERS_HASHED_AT_ONCE:
        return await asyncio.to_thread(_digest, text)
    return _digest(text)


def _digest(text: str) -> bytes:
    # What a backend wrote may hold half of a surrogate pair.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


async def _settled(tasks: Sequence[asyncio.Future[Finding]], seconds: float) -> None:
    """Until all are done, one has matched, or the time is over. One waiter, however many they are."""
    if not tasks:
        return
    ended = asyncio.get_running_loop().create_future()
    left = len(tasks)

    def note(task: asyncio.Future[Finding]) -> None:
        nonlocal left
        left -= 1
        is_over = left == 0 or task.cancelled() or task.exception() is not None or task.result().is_match
        if is_over and not ended.done():
            ended.set_result(None)

    for task in tasks:
        task.add_done_callback(note)
    try:
        async with asyncio.timeout(seconds):
            await ended
    except TimeoutError:
        pass  # whoever is not done has said nothing


async def _end(tasks: Sequence[asyncio.Future[Finding]]) -> None:
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        # Until each has let go of its connection and its place in the line.
        await asyncio.gather(*unfinished, return_exceptions=True)
