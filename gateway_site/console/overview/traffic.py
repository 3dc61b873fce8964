"""What the overview says of requests: how many, how many failed, and their time to first token."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import F, Q, Sum
from django.utils import timezone

from inference.activity.writer import FIRST_TOKEN_MS
from inference.models import Activity, DailyActivity
from policies.models import DailyVerdicts

BUCKETS = (*(f"first_token_{limit}_ms" for limit in FIRST_TOKEN_MS), "first_token_later")
LATEST_FAILURES, TOP_POLICIES = 8, 8
FAILURE_DAYS = 30


@dataclass(frozen=True, slots=True)
class Traffic:
    requests: int
    requests_today: int
    # Answered with 4xx, and with 5xx.
    refused: int
    failed: int
    # Requests by the time of their first token, as DailyActivity counts them.
    first_tokens: tuple[int, ...]

    def first_token_ms(self, share: float) -> float | None:
        """The time within which this share of the requests had their first token; None where none had one."""
        return quantile_ms(self.first_tokens, share)


def traffic(first_day: date, today: date, organization_id: uuid.UUID | None) -> Traffic:
    rows = DailyActivity.objects.filter(day__gte=first_day)
    if organization_id is not None:
        rows = rows.filter(organization=organization_id)
    found = rows.aggregate(
        **{f"sum_{name}": Sum(name, default=0) for name in ("requests", "refused", "failed", *BUCKETS)},
        today=Sum("requests", filter=Q(day=today), default=0),
    )
    return Traffic(
        requests=int(found["sum_requests"]),
        requests_today=int(found["today"]),
        refused=int(found["sum_refused"]),
        failed=int(found["sum_failed"]),
        first_tokens=tuple(int(found[f"sum_{name}"]) for name in BUCKETS),
    )


def quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """
    Estimate a quantile from a histogram: within a bucket, times are taken to be spread evenly.

    Infinite where it is later than the last bucket that has an end.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    edges = (0, *FIRST_TOKEN_MS)
    before = 0
    for count, low, high in zip(counts, edges, FIRST_TOKEN_MS, strict=False):
        if count and before + count >= wanted:
            return low + (high - low) * (wanted - before) / count
        before += count
    return float("inf")


def latest_failures(organization_id: uuid.UUID | None) -> list[Activity]:
    """The newest requests that were refused or went wrong, with their projects."""
    # Bounded, so that an organization without any does not read those of all others.
    since = timezone.now() - timedelta(days=FAILURE_DAYS)
    failed = Activity.objects.filter(status__gte=400, ended_at__gte=since).select_related(
        "project__organization"
    )
    if organization_id is not None:
        failed = failed.filter(organization=organization_id)
    return list(failed.order_by("-ended_at")[:LATEST_FAILURES])


def policy_matches(
    first_day: date, week_day: date, organization_id: uuid.UUID | None
) -> list[dict[str, Any]]:
    """The policies that matched most since `first_day`, and how often each did since `week_day`."""
    rows = DailyVerdicts.objects.filter(day__gte=first_day)
    if organization_id is not None:
        rows = rows.filter(version__policy__organization=organization_id)
    found = rows.values(
        policy_id=F("version__policy"),
        name=F("version__policy__name"),
        state=F("version__policy__state"),
        organization=F("version__policy__organization__name"),
    ).annotate(
        month=Sum("matches"),
        week=Sum("matches", filter=Q(day__gte=week_day), default=0),
        judged=Sum(F("matches") + F("no_matches") + F("inconclusive")),
        inconclusive_sum=Sum("inconclusive"),
    )
    return [dict(row) for row in found.order_by("-month", "name")[:TOP_POLICIES]]
