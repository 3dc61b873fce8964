"""Writes activity, off the path. The ledger has every request that was admitted; this is what people read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import connection, transaction

from gateway_site.api.row_writer import RowWriter
from inference.activity import Trace
from inference.models import Activity


def note(trace: Trace) -> None:
    """Take a finished trace. Never waits."""
    trace.ended = time.monotonic()
    writer.note(trace)


def _insert(rows: Sequence[Activity]) -> None:
    # Not bulk_create: it puts the statement together inside the transaction, and on SQLite the ledger waits
    # for that. A row may be there already, if the connection broke after it was committed.
    fields = Activity._meta.local_concrete_fields
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    statement = f"INSERT INTO {Activity._meta.db_table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    values = [
        [field.get_db_prep_save(getattr(row, field.attname), connection) for field in fields] for row in rows
    ]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)


writer: RowWriter[Trace] = RowWriter("activity", _insert)
