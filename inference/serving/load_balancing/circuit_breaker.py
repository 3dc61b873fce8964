"""The circuit breaker of one deployment: after failures in a row it is open, and asked last, for a while."""

from __future__ import annotations

from dataclasses import dataclass

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 10.0


@dataclass(slots=True)
class CircuitBreaker:
    """What this process saw of one deployment since it last answered. `now` is of a monotonic clock."""

    failures: int = 0
    opened_at: float | None = None

    def record_failure(self, now: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES_TO_OPEN:
            self.opened_at = now

    def is_open(self, now: float) -> bool:
        return self.opened_at is not None and now - self.opened_at < OPEN_SECONDS

    def begin_trial(self, now: float) -> None:
        """
        Let one request at a time find out whether the deployment is well again.

        The circuit counts as open for the others until that request's outcome is recorded, or for as long
        again if it never is.
        """
        if self.opened_at is not None and not self.is_open(now):
            self.opened_at = now
