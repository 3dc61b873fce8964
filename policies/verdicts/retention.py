"""How long verdicts are kept: GATEWAY_VERDICT_DAYS. Their daily sums stay."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from policies.models import Verdict

PRUNED_AT_ONCE = 10_000


def prune_verdicts() -> int:
    """Delete verdicts that are past their days, a few at a time so that no lock is held for long."""
    oldest = timezone.now() - timedelta(days=settings.GATEWAY_VERDICT_DAYS)
    total = 0
    while True:
        few = list(
            Verdict.objects.filter(occurred_at__lt=oldest).values_list("pk", flat=True)[:PRUNED_AT_ONCE]
        )
        if not few:
            return total
        total += Verdict.objects.filter(pk__in=few).delete()[0]
