"""Times as the console shows them: in UTC, and how long ago."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def relative(when: datetime, now: datetime | None = None) -> str:
    """`3 min ago`, `in 2 d`, `now`: the largest unit that fits."""
    seconds = round(((now or timezone.now()) - when).total_seconds())
    for name, size in UNITS:
        if abs(seconds) >= size:
            amount = f"{abs(seconds) // size} {name}"
            return f"{amount} ago" if seconds > 0 else f"in {amount}"
    return "now"


def timestamp(when: datetime | None, *, empty: str = "never") -> SafeString:
    """A cell of two lines: the time in UTC to the second, and below it how long ago that was."""
    if when is None:
        return format_html("<span>{}</span>", empty)
    return format_html(
        '<time datetime="{}" class="whitespace-nowrap">{} UTC<br><small>{}</small></time>',
        when.isoformat(),
        f"{when:%Y-%m-%d %H:%M:%S}",
        relative(when),
    )
