"""
A customer key's rate limit (requests per minute) and concurrency limit, counted exactly over all processes.

The counters are the key's meter, a row that is read and written under the lock of the organization's account.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from billing.ledger.operations import LedgerLimits
from billing.ledger.rows import MeterRow
from gateway_site.api.errors import ConcurrencyExceeded, RateLimited

MINUTE = timedelta(minutes=1)
# A slot is free again as soon as any of the key's requests ends.
CONCURRENCY_RETRY_SECONDS = 1


def turn_window(meter: MeterRow, window: datetime) -> None:
    """Start to count anew where the meter's minute is over."""
    # Not back by a minute: a clock that is set right by seconds must not open the same window twice. But
    # by more: a window that began while the clock was an hour ahead must not last until that hour comes.
    if not window <= meter.window_starts_at <= window + MINUTE:
        meter.window_starts_at, meter.window_requests = window, 0


def is_spent(meter: MeterRow, limits: LedgerLimits) -> bool:
    """Whether the key has no request left in the meter's minute."""
    return bool(limits.requests_per_minute) and meter.window_requests >= limits.requests_per_minute


def rate_limited(limits: LedgerLimits, *, retry_after_seconds: int) -> RateLimited:
    """The 429 of a key whose requests of this minute are spent."""
    return RateLimited(
        f"This key may make {limits.requests_per_minute} requests a minute; none is left in this one.",
        retry_after_seconds=retry_after_seconds,
    )


def refuse_over_concurrency(meter: MeterRow, limits: LedgerLimits) -> ConcurrencyExceeded | None:
    """The 429 of a key that has as many requests running as it may."""
    if not limits.concurrency or meter.live_holds < limits.concurrency:
        return None
    return ConcurrencyExceeded(
        f"This key may have {limits.concurrency} requests running at once, and {meter.live_holds} are.",
        retry_after_seconds=CONCURRENCY_RETRY_SECONDS,
    )
