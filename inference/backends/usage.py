"""
What a backend says it used, before anyone is charged for it.

Upstream's figures are input like any other: they may be missing, nonsense or malicious. A figure that
cannot be true is dropped, not repaired, and logged as a warning; the gateway then counts for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import structs

from inference.events import Usage

logger = logging.getLogger(__name__)

# Called with a few fixed words on what was wrong, at most once for each problem and request.
Alert = Callable[[str], None]


def log_alert(backend: str) -> Alert:
    def alert(problem: str) -> None:
        logger.warning("backend %s: untrustworthy usage: %s", backend, problem)

    return alert


class UsageWatch:
    """Follows the usage that one answer reports, chunk by chunk. `latest` is what may be believed."""

    def __init__(self, alert: Alert) -> None:
        self.latest: Usage | None = None
        self._alert = alert
        self._alerted: set[str] = set()

    def report(
        self,
        prompt_tokens: object,
        completion_tokens: object,
        *,
        total_tokens: object = None,
        has_output: bool,
        **details: object,
    ) -> Usage | None:
        """
        The usage to believe after this report, or None when the report says nothing credible.

        `details` are the other fields of Usage, None for what was not reported.
        """
        usage = Usage.checked(prompt_tokens, completion_tokens, **details)
        if usage is None:
            self.warn("not plain counts")
            return None
        if has_output and not (usage.completion_tokens and usage.prompt_tokens):
            # 0 is believed of an empty answer only. Here it would make a real one free.
            self.warn("zero for an answer that is not empty")
            return None
        if total_tokens is not None and total_tokens != usage.total_tokens:
            self.warn("the total is not the sum of its parts")
        if any(value is not None and value != getattr(usage, name) for name, value in details.items()):
            self.warn("a detail does not fit its whole")
        self.latest = self._never_less(usage)
        return self.latest

    def warn(self, problem: str) -> None:
        if problem not in self._alerted:
            self._alerted.add(problem)
            self._alert(problem)

    def _never_less(self, usage: Usage) -> Usage:
        before = self.latest
        if before is None:
            return usage
        if (
            usage.prompt_tokens >= before.prompt_tokens
            and usage.completion_tokens >= before.completion_tokens
        ):
            return usage
        self.warn("it shrank")
        return structs.replace(
            usage,
            prompt_tokens=max(usage.prompt_tokens, before.prompt_tokens),
            completion_tokens=max(usage.completion_tokens, before.completion_tokens),
        )
