"""
Judging one text by many policies: each policy's rule is a question to the judge.

The questions are put concurrently, up to the judge's bound, within one deadline for all of them together.
Scores are cached by text: agents send their history with every turn, and clients retry what failed.
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

MAX_CACHED_SCORES = 20_000
CHARACTERS_HASHED_AT_ONCE = 64 * 1024


class PolicyFinding(Struct, frozen=True):
    """The score that the judge gave a text under one policy; without one, a word for why."""

    version: AttachedVersion
    score: float | None
    latency_ms: int = 0
    reason: str = ""

    @property
    def is_match(self) -> bool:
        return self.score is not None and self.version.is_match(self.score)


class ScoreCache:
    """An LRU cache of scores by version, judge and digest of the text. Inconclusive ones are not cached."""

    def __init__(self) -> None:
        self._scores: OrderedDict[tuple[uuid.UUID, str, bytes], float] = OrderedDict()

    def get(self, key: tuple[uuid.UUID, str, bytes]) -> float | None:
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def put(self, key: tuple[uuid.UUID, str, bytes], score: float) -> None:
        self._scores[key] = score
        if len(self._scores) > MAX_CACHED_SCORES:
            self._scores.popitem(last=False)

    def clear(self) -> None:
        self._scores.clear()


score_cache = ScoreCache()
_concurrency_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class PolicyJudging:
    """The judge as the policies of one organization use it."""

    def __init__(self, organization_id: uuid.UUID, judge: Judge | None = None) -> None:
        self._judge = judge or current_judge()
        self._salt = salt_of(organization_id)

    @property
    def judge_name(self) -> str:
        return self._judge.name

    async def judge_all(self, versions: Sequence[AttachedVersion], text: str) -> list[PolicyFinding]:
        """
        Judge a text by each version, in this order; what has no score at the deadline is inconclusive.

        The first match ends it, since nothing more can follow from the others: they are left out.
        """
        digest = await _digest_of(text)
        known = {version.version_id: self._cached(version, digest) for version in versions}
        if not any(finding is not None and finding.is_match for finding in known.values()):
            unknown = [version for version in versions if known[version.version_id] is None]
            found = await self._judge_each(unknown, text, digest)
            known |= {finding.version.version_id: finding for finding in found}
        return [finding for version in versions if (finding := known[version.version_id]) is not None]

    async def judge(self, version: AttachedVersion, text: str) -> PolicyFinding:
        """Judge a text by one version, within a deadline of its own."""
        try:
            async with asyncio.timeout(settings.GATEWAY_JUDGE_SECONDS):
                digest = await _digest_of(text)
                return self._cached(version, digest) or await self._ask_judge(version, text, digest)
        except TimeoutError:
            return PolicyFinding(version, None, 1000 * settings.GATEWAY_JUDGE_SECONDS, "deadline")

    async def _judge_each(
        self, versions: Sequence[AttachedVersion], text: str, digest: bytes
    ) -> list[PolicyFinding]:
        started = time.monotonic()
        tasks = [asyncio.ensure_future(self._ask_judge(version, text, digest)) for version in versions]
        try:
            await _wait_for_decision(tasks, settings.GATEWAY_JUDGE_SECONDS)
            is_matched = any(task.done() and task.result().is_match for task in tasks)
            waited_ms = round(1000 * (time.monotonic() - started))
            return [
                task.result() if task.done() else PolicyFinding(version, None, waited_ms, "deadline")
                for version, task in zip(versions, tasks, strict=True)
                if task.done() or not is_matched
            ]
        finally:
            await _cancel_unfinished(tasks)

    def _cached(self, version: AttachedVersion, digest: bytes) -> PolicyFinding | None:
        score = score_cache.get((version.version_id, self._judge.name, digest))
        return None if score is None else PolicyFinding(version, score)

    async def _ask_judge(self, version: AttachedVersion, text: str, digest: bytes) -> PolicyFinding:
        async with _concurrency_limit():
            started = time.monotonic()
            score: float | None = None
            reason = ""
            try:
                score = _checked(await self._judge.score(version.rule, text, salt=self._salt))
            except Inconclusive as inconclusive:
                reason = inconclusive.reason[:60]
            latency_ms = round(1000 * (time.monotonic() - started))
        if score is not None:
            score_cache.put((version.version_id, self._judge.name, digest), score)
        return PolicyFinding(version, score, latency_ms, reason)


def _checked(score: float) -> float:
    if not 0.0 <= score <= 1.0:  # nor is NaN
        raise Inconclusive("garbage")
    return score


def salt_of(organization_id: uuid.UUID) -> str:
    """What the questions of this organization begin with, and no other's, without saying whose they are."""
    secret = settings.SECRET_KEY.encode()
    return hmac.digest(secret, b"judge " + organization_id.bytes, hashlib.sha256).hex()[:32]


def _concurrency_limit() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    limit = _concurrency_limits.get(loop)
    if limit is None:
        limit = _concurrency_limits[loop] = asyncio.Semaphore(settings.GATEWAY_JUDGE_CONCURRENCY)
    return limit


async def _digest_of(text: str) -> bytes:
    if len(text) > CHARACTERS_HASHED_AT_ONCE:
        return await asyncio.to_thread(_digest, text)
    return _digest(text)


def _digest(text: str) -> bytes:
    # What a backend wrote may hold half of a surrogate pair.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


async def _wait_for_decision(tasks: Sequence[asyncio.Future[PolicyFinding]], seconds: float) -> None:
    """Wait until all are done, one has matched, or the deadline is over. One waiter for all of them."""
    if not tasks:
        return
    decided = asyncio.get_running_loop().create_future()
    left = len(tasks)

    def check(task: asyncio.Future[PolicyFinding]) -> None:
        nonlocal left
        left -= 1
        is_over = left == 0 or task.cancelled() or task.exception() is not None or task.result().is_match
        if is_over and not decided.done():
            decided.set_result(None)

    for task in tasks:
        task.add_done_callback(check)
    try:
        async with asyncio.timeout(seconds):
            await decided
    except TimeoutError:
        pass  # those that are not done have no score


async def _cancel_unfinished(tasks: Sequence[asyncio.Future[PolicyFinding]]) -> None:
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        # Until each has let go of its connection and its share of the concurrency limit.
        await asyncio.gather(*unfinished, return_exceptions=True)
