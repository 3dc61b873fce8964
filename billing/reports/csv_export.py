"""
Costs as CSV, for spreadsheets.

Names are customers' own words, and a spreadsheet runs a cell that begins like a formula. Such a cell gets an
apostrophe, which spreadsheets take for "this is text". Amounts are ours and stay numbers.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator

from django.utils.text import slugify

from billing.money import usd
from billing.reports.cost_table import CostRange, DayCost, Names, by_day

FORMULA_STARTS = frozenset("=+-@\t\r\n")

DIMENSION_COLUMNS = {
    "project_id": ["project_id", "project"],
    "api_key_id": ["api_key_id", "api_key"],
    "line_item": ["line_item"],
}


def cost_lines(asked: CostRange) -> Iterator[str]:
    """The file, some days at a time: a header, then a row for each UTC day and group."""
    names = Names(asked)
    yield _written([header(asked)])
    for costs in by_day(asked):
        if costs:
            yield _written([_row(asked, cost, names) for cost in costs])


def header(asked: CostRange) -> list[str]:
    dimensions = [column for name in asked.group_by for column in DIMENSION_COLUMNS[name]]
    return ["day", "organization_id", "organization", *dimensions, "amount_usd"]


def file_name(asked: CostRange) -> str:
    """Of ASCII letters, digits and hyphens, whatever the organization is called."""
    owner = slugify(asked.organization.name)[:60] or str(asked.organization.pk)
    return f"costs-{owner}-{asked.first_day}-{asked.last_day}.csv"


def as_text(value: str | None) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = value or ""
    # Wide forms of these characters are read as the plain ones, and blanks before them are passed over.
    first = unicodedata.normalize("NFKC", text.lstrip(" \u00a0\u200b\ufeff")[:1])
    return f"'{text}" if first in FORMULA_STARTS else text


def _row(asked: CostRange, cost: DayCost, names: Names) -> list[str]:
    project_id, api_key_id, line_item = cost.group
    cells = {
        "project_id": [as_text(project_id), as_text(names.projects.get(project_id or ""))],
        "api_key_id": [as_text(api_key_id), as_text(names.keys.get(api_key_id or ""))],
        "line_item": [as_text(line_item)],
    }
    dimensions = [cell for name in asked.group_by for cell in cells[name]]
    owner = asked.organization
    return [str(cost.day), str(owner.pk), as_text(owner.name), *dimensions, usd(cost.amount_nanousd)]


def _written(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
