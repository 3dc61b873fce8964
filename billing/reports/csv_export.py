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
from billing.reports.cost_table import CostNames, CostRange, DayCost, costs_in_steps

FORMULA_STARTS = frozenset("=+-@\t\r\n")

DIMENSION_COLUMNS = {
    "project_id": ["project_id", "project"],
    "api_key_id": ["api_key_id", "api_key"],
    "line_item": ["line_item"],
}


def csv_pieces(cost_range: CostRange) -> Iterator[str]:
    """The CSV file, some days at a time: a header, then a row for each UTC day and group."""
    names = CostNames(cost_range)
    yield _csv_text([header(cost_range)])
    for costs in costs_in_steps(cost_range):
        if costs:
            yield _csv_text([_row(cost_range, cost, names) for cost in costs])


def header(cost_range: CostRange) -> list[str]:
    dimensions = [column for name in cost_range.group_by for column in DIMENSION_COLUMNS[name]]
    return ["day", "organization_id", "organization", *dimensions, "amount_usd"]


def file_name(cost_range: CostRange) -> str:
    """The name of the file: ASCII letters, digits and hyphens, whatever the organization is called."""
    owner = slugify(cost_range.organization.name)[:60] or str(cost_range.organization.pk)
    return f"costs-{owner}-{cost_range.first_day}-{cost_range.last_day}.csv"


def text_cell(value: str | None) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = value or ""
    # Wide forms of these characters are read as the plain ones, and blanks before them are passed over.
    first = unicodedata.normalize("NFKC", text.lstrip(" \u00a0\u200b\ufeff")[:1])
    return f"'{text}" if first in FORMULA_STARTS else text


def _row(cost_range: CostRange, cost: DayCost, names: CostNames) -> list[str]:
    project_id, api_key_id, line_item = cost.group
    cells = {
        "project_id": [text_cell(project_id), text_cell(names.projects.get(project_id or ""))],
        "api_key_id": [text_cell(api_key_id), text_cell(names.keys.get(api_key_id or ""))],
        "line_item": [text_cell(line_item)],
    }
    dimensions = [cell for name in cost_range.group_by for cell in cells[name]]
    owner = cost_range.organization
    return [str(cost.day), str(owner.pk), text_cell(owner.name), *dimensions, usd(cost.amount_nanousd)]


def _csv_text(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
