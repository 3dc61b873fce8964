"""Versions without a database, judges that are told what to say, and answers that are told in pieces."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.request_policies import RequestPolicies
from policies.judges import Inconclusive, Judge
from policies.judges.quoted import QuotedJudge
from tests.policies.factories import RULE

ORGANIZATION, PROJECT, REQUEST = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()


def version(**fields: Any) -> AttachedVersion:
    defaults: dict[str, Any] = {
        "policy_id": uuid.uuid4(),
        "version_id": uuid.uuid4(),
        "name": "Internal",
        "rule": RULE,
        "direction": "both",
        "mode": "enforcing",
        "scope": "organization",
        "project_ids": frozenset(),
        "threshold_basis_points": 5000,
    }
    return AttachedVersion(**{**defaults, **fields})


def request_policies(*versions: AttachedVersion, judge: Judge | None = None) -> RequestPolicies:
    return RequestPolicies(
        versions,
        organization_id=ORGANIZATION,
        project_id=PROJECT,
        request_id=REQUEST,
        judge=judge or QuotedJudge(),
    )


class FakeJudge:
    """Says what `opinion` returns, after a while, and counts."""

    name = "fake"

    def __init__(self, opinion: Callable[[str, str], float | None], seconds: float = 0.0) -> None:
        self.opinion, self.seconds = opinion, seconds
        self.asked: list[tuple[str, str]] = []
        self.running = self.at_once = self.cancelled = 0

    async def score(self, rule: str, text: str, *, salt: str = "") -> float:
        self.asked.append((rule, text))
        self.running += 1
        self.at_once = max(self.at_once, self.running)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        found = self.opinion(rule, text)
        if found is None:
            raise Inconclusive("the judge's own words")
        return found

    async def close(self) -> None:
        """Nothing is open."""


def says(score: float | None, seconds: float = 0.0) -> FakeJudge:
    return FakeJudge(lambda rule, text: score, seconds)


Piece = tuple[Any, str]


class Answer:
    """A backend's events, and how it came to its end."""

    def __init__(self, pieces: Sequence[Piece | None], failure: Exception | None = None) -> None:
        self.pieces, self.failure = pieces, failure
        self.taken = 0
        self.is_closed = False

    async def events(self) -> AsyncGenerator[Piece | None, None]:
        try:
            for piece in self.pieces:
                self.taken += 1
                yield piece
                await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure
        finally:
            self.is_closed = True


def describe(event: Piece | None) -> Piece | None:
    return event
