"""Cursor pagination: lists that continue after the last id of the previous page."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.http import QueryDict

from gateway_site.api.errors import InvalidRequest, NotFound
from gateway_site.api.identifiers import uuid_or_none

# Unspecified: admin-key-list-parameters. The names are those that the OpenAI SDK sends, and so is the
# default page size; the bounds are the spec's.
CURSOR, PAGE_SIZE, ORDER = "after", "limit", "order"
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 100
MAX_CURSOR_LENGTH = 200


def single_values(query: QueryDict, allowed: set[str]) -> dict[str, str]:
    """The query parameters, each known and given once."""
    for name in query:
        if name not in allowed:
            raise InvalidRequest("This query parameter is not accepted.", param=name)
        if len(query.getlist(name)) != 1:
            raise InvalidRequest("This query parameter was given more than once.", param=name)
    return {name: str(query[name]) for name in query}


def integer(text: str, *, param: str, minimum: int, maximum: int) -> int:
    """Parse a query parameter that is a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and minimum <= int(text) <= maximum):
        raise InvalidRequest(f"This must be a whole number from {minimum} to {maximum}.", param=param)
    return int(text)


def page(query: QueryDict, rows: QuerySet, *, all_rows: QuerySet, represent: Any) -> dict[str, Any]:
    """
    One page of `rows` in order of creation.

    `all_rows` is where the cursor is looked up: a row that left the list since the previous page still
    marks the place where that page ended.
    """
    values = single_values(query, {CURSOR, PAGE_SIZE, ORDER})
    size = integer(
        values.get(PAGE_SIZE, str(DEFAULT_PAGE_SIZE)), param=PAGE_SIZE, minimum=1, maximum=MAX_PAGE_SIZE
    )
    order = values.get(ORDER, "asc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("This must be asc or desc.", param=ORDER)
    if CURSOR in values:
        rows = rows.filter(_beyond(_cursor_row(all_rows, values[CURSOR]), order))
    direction = "" if order == "asc" else "-"
    found = list(rows.order_by(f"{direction}created_at", f"{direction}id")[: size + 1])
    data = [represent(row) for row in found[:size]]
    return {
        "object": "list",
        "data": data,
        "has_more": len(found) > size,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
    }


def _cursor_row(rows: QuerySet, cursor: str) -> Any:
    if not 1 <= len(cursor) <= MAX_CURSOR_LENGTH:
        raise InvalidRequest(f"This must have 1 to {MAX_CURSOR_LENGTH} characters.", param=CURSOR)
    identifier = uuid_or_none(cursor)
    row = rows.filter(pk=identifier).first() if identifier else None
    if row is None:
        raise NotFound("There is no resource with this id to continue after.", param=CURSOR)
    return row


def _beyond(row: Any, order: str) -> Q:
    sign = "gt" if order == "asc" else "lt"
    return Q(**{f"created_at__{sign}": row.created_at}) | Q(
        created_at=row.created_at, **{f"id__{sign}": row.id}
    )
