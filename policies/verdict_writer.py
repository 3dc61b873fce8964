"""Writes verdicts, off the path. What was refused was refused all the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import IntegrityError

from gateway_site.api.row_writer import Noted, RowWriter
from policies.models import Verdict

logger = logging.getLogger(__name__)


def _insert(rows: Sequence[Verdict]) -> None:
    try:
        Verdict.objects.bulk_create(rows)
    except IntegrityError:
        # One of them will never be taken, and all others would wait behind it.
        for row in rows:
            _insert_alone(row)


def _insert_alone(row: Verdict) -> None:
    try:
        row.save(force_insert=True)
    except IntegrityError:
        logger.exception("a verdict was refused by the database and is lost")


writer: RowWriter[Noted] = RowWriter("verdicts", _insert, max_waiting=50_000)
