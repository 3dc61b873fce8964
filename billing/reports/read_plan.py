"""
Which sums and which cost lines a report is read from.

Sums are by UTC day. Where a report begins or ends within a day, the lines of that day make the difference:
either those that are in the report are read instead of the sums, or those that are not are taken off them,
whichever are fewer. So a report up to now costs no more than one of whole days.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DAY_SECONDS = 86_400

# Unix seconds: from the first, up to and without the second.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The days whose sums are read, counted from 1970, and the spans of lines to add or to take off."""

    first_day: int
    end_day: int
    added: tuple[Span, ...]
    taken_off: tuple[Span, ...]


def read_plan(start_time: int, end_time: int, *, now: int) -> ReadPlan:
    """Plan to read the costs from `start_time` up to and without `end_time`. `now` only makes it cheap."""
    first_day, end_day = start_time // DAY_SECONDS, -(-end_time // DAY_SECONDS)
    sums_from, sums_until = first_day, end_day
    added: list[Span] = []
    taken_off: list[Span] = []
    for day in sorted({first_day, end_day - 1}):
        day_start, day_end = day * DAY_SECONDS, (day + 1) * DAY_SECONDS
        inside = (max(start_time, day_start), min(end_time, day_end))
        outside = [each for each in ((day_start, inside[0]), (inside[1], day_end)) if each[0] < each[1]]
        if _elapsed(outside, now) <= _elapsed([inside], now):
            taken_off += outside
            continue
        added.append(inside)
        if day == first_day:
            sums_from = day + 1
        else:
            sums_until = day
    return ReadPlan(sums_from, sums_until, tuple(added), tuple(taken_off))


def _elapsed(spans: Iterable[Span], now: int) -> int:
    """Seconds of these spans that have passed: a measure of the lines in them."""
    return sum(max(0, min(end, now) - start) for start, end in spans)
