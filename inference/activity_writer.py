"""Writes activity, off the path. The ledger has every request that was admitted; this is what people read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, transaction

from gateway_site.api.daily_sums import DailySums
from gateway_site.api.row_writer import RowWriter
from inference.activity import Trace
from inference.models import Activity, DailyActivity

# The longest that a first token may take to be counted in each column of DailyActivity; later, in the last.
FIRST_TOKEN_MS = (100, 250, 500, 1000, 2500, 5000)
daily = DailySums(
    DailyActivity,
    cell=("day", "organization", "project", "api_key", "model"),
    sums=(
        "requests",
        "refused",
        "failed",
        "prompt_tokens",
        "completion_tokens",
        *(f"first_token_{limit}_ms" for limit in FIRST_TOKEN_MS),
        "first_token_later",
    ),
)


def note(trace: Trace) -> None:
    """Take a finished trace. Never waits."""
    trace.ended = time.monotonic()
    writer.note(trace)


def _insert(rows: Sequence[Activity]) -> None:
    # Not bulk_create: it puts the statement together inside the transaction, and on SQLite the ledger waits
    # for that.
    fields = Activity._meta.local_concrete_fields
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    statement = f"INSERT INTO {Activity._meta.db_table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    by_id = {row.pk: row for row in rows}
    values = {
        pk: [field.get_db_prep_save(getattr(row, field.attname), connection) for field in fields]
        for pk, row in by_id.items()
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(statement, list(values.values()))
            if cursor.rowcount != len(values):
                raise _SomeAreThere
            daily.add(gains_of(by_id.values()))
    except _SomeAreThere:
        with transaction.atomic(), connection.cursor() as cursor:
            daily.add(
                gains_of([by_id[pk] for pk, value in values.items() if _is_new(cursor, statement, value)])
            )


class _SomeAreThere(Exception):
    """The connection broke while they were committed, so they are written again and counted already."""


def _is_new(cursor: Any, statement: str, values: list[Any]) -> bool:
    # Asked of the insert itself, which waits for one that is still being committed; a look would not.
    cursor.execute(statement, values)
    return bool(cursor.rowcount)


def gains_of(rows: Iterable[Activity], times: int = 1) -> dict[tuple[Any, ...], list[int]]:
    """What these rows, each so many times, add to the sums of their days."""
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(daily.sums))
    for row in rows:
        sums = found[row.ended_at.date(), row.organization_id, row.project_id, row.api_key_id, row.model]
        sums[0] += times
        sums[1] += times * (400 <= row.status < 500)
        sums[2] += times * (row.status >= 500)
        sums[3] += times * (row.prompt_tokens or 0)
        sums[4] += times * (row.completion_tokens or 0)
        if row.first_token_ms is not None:
            slower = sum(row.first_token_ms > limit for limit in FIRST_TOKEN_MS)
            sums[5 + slower] += times
    return found


writer: RowWriter[Trace] = RowWriter("activity", _insert)
