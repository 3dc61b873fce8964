"""
What an app adds to the console's pages of an app below it, which must not know of it.

An organization's page shows its credit although organizations know nothing of money: billing adds it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.http import HttpRequest

# What to show of each row, by its primary key: the cells in the order of the columns.
Cells = Mapping[Any, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Panel:
    """A small table on the page of one row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    # What is said where there are no rows.
    empty: str
    # A link to all of it: an address and its words.
    link: tuple[str, str] | None = None
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Addition:
    """Columns of a list, filled for a whole page at once, and actions and panels on the page of a row."""

    # Who does not have it sees none of this.
    permission: str
    columns: Sequence[str] = ()
    cells: Callable[[list[Any]], Cells] | None = None
    actions: Sequence[Any] = ()
    panels: Callable[[HttpRequest, Any], Iterable[Panel]] | None = None


_additions: dict[type[models.Model], list[Addition]] = {}


def add_to(model: type[models.Model], addition: Addition) -> None:
    """Add to the pages of this model, when the app is loaded."""
    _additions.setdefault(model, []).append(addition)


def additions_to(model: type[models.Model], request: HttpRequest | None = None) -> list[Addition]:
    """What was added to a model's pages, as far as this person may see it."""
    found = _additions.get(model, [])
    return [each for each in found if request is None or request.user.has_perm(each.permission)]


def columns_of(addition: Addition) -> list[Any]:
    """The addition's columns as an admin page lists them; each reads what `fill` has put on the row."""
    return [_column(addition, position, heading) for position, heading in enumerate(addition.columns)]


def fill(addition: Addition, rows: list[Any]) -> None:
    """Put the cells of these rows on them, all at once."""
    if addition.cells is None or not rows:
        return
    cells = addition.cells(rows)
    for row in rows:
        kept = row.__dict__.setdefault("_added_cells", {})
        kept[id(addition)] = cells.get(row.pk)


def _column(addition: Addition, position: int, heading: str) -> Any:
    def cell(row: Any) -> Any:
        found = row.__dict__.get("_added_cells", {}).get(id(addition))
        return "" if found is None else found[position]

    cell.__name__ = f"added_{heading.lower().replace(' ', '_')}"
    cell.short_description = heading  # type: ignore[attr-defined]
    return cell
