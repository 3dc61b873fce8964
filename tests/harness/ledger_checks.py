"""The ledger's invariants as one assertion, for every test that touches money."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from billing.ledger.invariants import audit
from billing.ledger.sweeper import sweep


def assert_books_balance(now: datetime | None = None) -> None:
    """Every invariant holds, orphans included, as of `now`."""
    broken = [
        f"{finding.invariant.name}: {finding.count} rows, for example {finding.examples}"
        for finding in audit(now)
        if finding.count
    ]
    assert not broken, "\n".join(broken)


def decide_everything() -> None:
    """As if every lease had run out: whatever a server left behind is decided now. Then the books balance."""
    later = timezone.now() + timedelta(seconds=settings.GATEWAY_LEASE_SECONDS + 10)
    sweep(later)
    assert_books_balance(later)
