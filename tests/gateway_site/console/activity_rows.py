"""Rows of requests and verdicts of the last days, as their writers would have left them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from inference.activity.writer import daily
from inference.models import Activity
from policies.models import DailyVerdicts, Policy, PolicyVersion
from tests.billing.factories import Customer

FIRST_TOKENS = [name for name in daily.sums if name.startswith("first_token")]


def requests(who: Customer, days_ago: int = 0, model: str = "gpt", **sums: int) -> None:
    """Add to the sums of one day: requests=, refused=, failed=, first_token_100_ms= and so on."""
    day = timezone.now().date() - timedelta(days=days_ago)
    cell = (day, who.organization.pk, who.project.pk, who.key.pk, model)
    daily.add({cell: [sums.get(name, 0) for name in daily.sums]})


def failure(who: Customer, status: int = 502, minutes_ago: int = 1, **fields: Any) -> Activity:
    ended_at = timezone.now() - timedelta(minutes=minutes_ago)
    values = {
        "id": uuid.uuid4(),
        "created_at": ended_at,
        "ended_at": ended_at,
        "organization": who.organization,
        "project": who.project,
        "api_key": who.key,
        "endpoint": "/v1/chat/completions",
        "model": "gpt",
        "status": status,
        "code": "backend_failed",
        "total_ms": 10,
    }
    return Activity.objects.create(**{**values, **fields})


def verdicts(policy: Policy, days_ago: int, matches: int) -> None:
    day = timezone.now().date() - timedelta(days=days_ago)
    version = PolicyVersion.objects.get(policy=policy)
    DailyVerdicts.objects.create(day=day, version=version, matches=matches, no_matches=10, inconclusive=1)
