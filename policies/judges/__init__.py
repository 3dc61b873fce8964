"""Judges, and the one that this deployment has chosen."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from policies.judges.base import Inconclusive, Judge
from policies.judges.logprob import LogprobJudge
from policies.judges.quoted import QuotedJudge

__all__ = ["Inconclusive", "Judge", "current_judge"]


def current_judge() -> Judge:
    """A model where one is configured; otherwise the one that only looks for quoted phrases."""
    return _judge(
        settings.GATEWAY_JUDGE_BASE_URL,
        settings.GATEWAY_JUDGE_MODEL,
        settings.GATEWAY_JUDGE_API_KEY,
        settings.GATEWAY_JUDGE_SECONDS,
    )


@lru_cache(maxsize=4)
def _judge(base_url: str, model: str, api_key: str, seconds: int) -> Judge:
    if not base_url:
        return QuotedJudge()
    return LogprobJudge(base_url=base_url, model=model, api_key=api_key, seconds=seconds)
