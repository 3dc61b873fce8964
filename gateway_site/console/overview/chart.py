"""The overview's chart: spending by day and project, stacked, and the same numbers as a table."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from billing.money import short_usd, usd
from billing.reports.spending import ProjectDay

SHOWN_PROJECTS = 8
# Told apart by people who see few colours, on a light page and on a dark one; grey is for the rest.
COLOURS = ("#7c3aed", "#0284c7", "#f59e0b", "#059669", "#db2777", "#65a30d", "#dc5f17", "#22b8cf")
OTHER, OTHER_COLOUR = "Other projects", "#8b93a1"
MUTED = "#767e8c"
NANO = 10**9

OPTIONS: dict[str, Any] = {
    "animation": False,
    "responsive": True,
    "maintainAspectRatio": False,
    "locale": "en-US",
    "interaction": {"mode": "index", "intersect": False},
    "plugins": {"legend": {"display": False}, "tooltip": {"enabled": True}},
    "datasets": {"bar": {"maxBarThickness": 28}},
    "scales": {
        "x": {
            "stacked": True,
            "grid": {"display": False},
            "ticks": {"color": MUTED, "maxRotation": 0, "autoSkipPadding": 16},
        },
        "y": {
            "stacked": True,
            "beginAtZero": True,
            "border": {"display": False},
            "ticks": {
                "color": MUTED,
                "maxTicksLimit": 6,
                "format": {
                    "style": "currency",
                    "currency": "USD",
                    "maximumSignificantDigits": 4,
                    # Or it would write $4E-5 for the first requests of a new installation.
                    "notation": "standard",
                },
            },
        },
    },
}


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    colour: str
    # Of each day, in nano-USD.
    amounts: list[int]

    @property
    def total(self) -> int:
        return sum(self.amounts)


def top_projects(spent: Sequence[ProjectDay]) -> list[uuid.UUID]:
    """The projects that get a colour of their own, the dearest first."""
    sums: defaultdict[uuid.UUID, int] = defaultdict(int)
    for each in spent:
        sums[each.project_id] += each.amount_nanousd
    dearest = sorted(sums, key=lambda project: (-sums[project], str(project)))
    return [project for project in dearest if sums[project]][:SHOWN_PROJECTS]


def series(
    spent: Sequence[ProjectDay], days: Sequence[date], labels: Mapping[uuid.UUID, str]
) -> list[Series]:
    """A series for each project in `labels`, in their order, and one for all others that spent anything."""
    position = {day: index for index, day in enumerate(days)}
    amounts: dict[uuid.UUID | None, list[int]] = {project: [0] * len(days) for project in (*labels, None)}
    for each in spent:
        if each.day in position:
            of_project = amounts[each.project_id if each.project_id in labels else None]
            of_project[position[each.day]] += each.amount_nanousd
    own = [
        Series(label, colour, amounts[project])
        for (project, label), colour in zip(labels.items(), COLOURS, strict=False)
    ]
    return [*own, Series(OTHER, OTHER_COLOUR, amounts[None])] if any(amounts[None]) else own


def chart(shown: Sequence[Series], days: Sequence[date]) -> dict[str, Any]:
    """The chart as its template needs it: data for the canvas, a legend with sums, a table of all numbers."""
    data = {
        "labels": [f"{day:%b} {day.day}" for day in days],
        "datasets": [
            {
                "label": each.label,
                "backgroundColor": each.colour,
                # For the height of a bar only; every amount that is read is text from whole numbers.
                "data": [amount / NANO for amount in each.amounts],
            }
            for each in shown
        ],
    }
    return {
        "data": json.dumps(data),
        "options": json.dumps(OPTIONS),
        "legend": [
            {"label": each.label, "colour": each.colour, "sum": short_usd(each.total)} for each in shown
        ],
        "headers": [each.label for each in shown],
        "rows": [
            {
                "day": day.isoformat(),
                "amounts": [usd(each.amounts[index]) for each in shown],
                "sum": usd(sum(each.amounts[index] for each in shown)),
            }
            for index, day in enumerate(days)
        ],
    }
