"""The days, months and all of time in which spending caps count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def period_of(moment: datetime, period: str) -> tuple[datetime, datetime | None]:
    """Start and end of the day, month or all of time that `moment` is in, in UTC."""
    if period == "total":
        return EPOCH, None
    moment = moment.astimezone(UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day, day + timedelta(days=1)
    month = day.replace(day=1)
    return month, (month + timedelta(days=32)).replace(day=1)
