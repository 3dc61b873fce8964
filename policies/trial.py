"""The trial of a draft on one text, for a person who waits for it."""

from __future__ import annotations

import asyncio
import time

from django.conf import settings
from msgspec import Struct

from policies.judges import Inconclusive, current_judge
from policies.models import Policy

MAX_CHARACTERS = 100_000


class Trial(Struct, frozen=True):
    """The outcome of a trial; no score means that the judge had no answer, and `reason` says why."""

    judge: str
    threshold_basis_points: int
    latency_ms: int
    score: float | None = None
    reason: str = ""

    @property
    def is_match(self) -> bool:
        return self.score is not None and self.score * 10_000 >= self.threshold_basis_points

    @property
    def percent(self) -> str:
        return "" if self.score is None else f"{100 * self.score:.2f} %"


def try_draft(policy: Policy, text: str) -> Trial:
    """The judge's score of a text under the draft. Nothing is recorded."""
    return _run(policy.rule, policy.threshold_if_published, text)


def probe_judge() -> Trial:
    """Whether this deployment's judge answers at all, for `doctor`: no score means that it does not."""
    return _run('Does the text contain "yes"?', settings.GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS, "yes")


def _run(rule: str, threshold: int, text: str) -> Trial:
    # A loop of its own: what the judge opens here is closed here, and no request shares it.
    return asyncio.run(_try(rule, threshold, text))


async def _try(rule: str, threshold: int, text: str) -> Trial:
    judge = current_judge()
    started = time.monotonic()
    score, reason = None, ""
    try:
        async with asyncio.timeout(settings.GATEWAY_JUDGE_SECONDS):
            score = await judge.score(rule, text)
    except TimeoutError:
        reason = "it took too long"
    except Inconclusive as inconclusive:
        reason = inconclusive.reason
    finally:
        await judge.close()
    latency_ms = round(1000 * (time.monotonic() - started))
    return Trial(judge.name, threshold, latency_ms, score, reason)
