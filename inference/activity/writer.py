"""Writes the traces of requests to the database, behind their backs: for people, not for the books."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, transaction

from gateway_site.database.bulk_insert import BulkInsert
from gateway_site.database.daily_sums import DailySums
from gateway_site.database.row_writer import RowWriter
from inference.activity.trace import ActivityRow, RequestTrace
from inference.models import Activity, DailyActivity

# The longest that a first token may take to be counted in each column of DailyActivity; later, in the last.
FIRST_TOKEN_MS = (100, 250, 500, 1000, 2500, 5000)
activity = BulkInsert(Activity)
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


def record(trace: RequestTrace) -> None:
    """Take the trace of a finished request, to be written later. Never waits."""
    trace.ended = time.monotonic()
    writer.add(trace)


def insert_activity(rows: Sequence[Activity | ActivityRow]) -> None:
    by_id = {row.id: row for row in rows}
    distinct = list(by_id.values())
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if activity.insert(cursor, distinct) != len(distinct):
                raise _SomeAreThere
            daily.add(gains_of(distinct))
    except _SomeAreThere:
        with transaction.atomic(), connection.cursor() as cursor:
            # Asked of the insert itself, which waits for one still being committed; SELECT does not.
            daily.add(gains_of([row for row in distinct if activity.insert(cursor, [row])]))


class _SomeAreThere(Exception):
    """Some rows exist: the connection broke while they were committed, so they are counted already."""


def gains_of(rows: Iterable[Activity | ActivityRow]) -> dict[tuple[Any, ...], list[int]]:
    """What these rows add to the sums of their days."""
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(daily.sums))
    for row in rows:
        sums = found[row.ended_at.date(), row.organization_id, row.project_id, row.api_key_id, row.model]
        sums[0] += 1
        sums[1] += 400 <= row.status < 500
        sums[2] += row.status >= 500
        sums[3] += row.prompt_tokens or 0
        sums[4] += row.completion_tokens or 0
        if row.first_token_ms is not None:
            slower = sum(row.first_token_ms > limit for limit in FIRST_TOKEN_MS)
            sums[5 + slower] += 1
    return found


writer: RowWriter[RequestTrace] = RowWriter("activity", insert_activity)
