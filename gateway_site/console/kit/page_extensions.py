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
class PageExtension:
    """Columns of a list, filled for a whole page at once, and actions and panels on the page of a row."""

    # Who does not have it sees none of this.
    permission: str
    columns: Sequence[str] = ()
    cells: Callable[[list[Any]], Cells] | None = None
    actions: Sequence[Any] = ()
    panels: Callable[[HttpRequest, Any], Iterable[Panel]] | None = None


_extensions: dict[type[models.Model], list[PageExtension]] = {}


def extend_pages(model: type[models.Model], extension: PageExtension) -> None:
    """Add columns, actions and panels to the pages of this model, when the app is loaded."""
    _extensions.setdefault(model, []).append(extension)


def extensions_of(model: type[models.Model], request: HttpRequest | None = None) -> list[PageExtension]:
    """The extensions of a model's pages, as far as this person may see them."""
    found = _extensions.get(model, [])
    return [each for each in found if request is None or request.user.has_perm(each.permission)]


def extension_columns(extension: PageExtension) -> list[Any]:
    """The extension's columns as an admin page lists them; each reads what `fill_cells` put on a row."""
    return [_column(extension, position, heading) for position, heading in enumerate(extension.columns)]


def fill_cells(extension: PageExtension, rows: list[Any]) -> None:
    """Put the cells of these rows on them, all at once."""
    if extension.cells is None or not rows:
        return
    cells = extension.cells(rows)
    for row in rows:
        kept = row.__dict__.setdefault("_extension_cells", {})
        kept[id(extension)] = cells.get(row.pk)


def _column(extension: PageExtension, position: int, heading: str) -> Any:
    def cell(row: Any) -> Any:
        found = row.__dict__.get("_extension_cells", {}).get(id(extension))
        return "" if found is None else found[position]

    cell.__name__ = f"added_{heading.lower().replace(' ', '_')}"
    cell.short_description = heading  # type: ignore[attr-defined]
    return cell
