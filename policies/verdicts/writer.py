"""Writes verdicts in the background. A refusal does not depend on its row."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction

from gateway_site.database.daily_sums import DailySums
from gateway_site.database.row_writer import RowSource, RowWriter
from policies.models import DailyVerdicts, Verdict, VerdictOutcome

logger = logging.getLogger(__name__)


# In the order of the sums below.
OUTCOMES = (VerdictOutcome.MATCH, VerdictOutcome.NO_MATCH, VerdictOutcome.INCONCLUSIVE)
daily = DailySums(DailyVerdicts, cell=("day", "version"), sums=("matches", "no_matches", "inconclusive"))


def insert_verdicts(rows: Sequence[Verdict]) -> None:
    try:
        with transaction.atomic():
            Verdict.objects.bulk_create(rows)
            _add_to_days(rows)
    except IntegrityError:
        # One of them will never be taken, and all others would wait behind it.
        for row in rows:
            _insert_alone(row)


def _insert_alone(row: Verdict) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _add_to_days([row])
    except IntegrityError:
        logger.exception("a verdict was refused by the database and is lost")


def _add_to_days(rows: Sequence[Verdict]) -> None:
    counts: defaultdict[tuple[Any, Any], list[int]] = defaultdict(lambda: [0] * len(OUTCOMES))
    for row in rows:
        counts[row.occurred_at.date(), row.version_id][OUTCOMES.index(VerdictOutcome(row.outcome))] += 1
    daily.add(counts)


writer: RowWriter[RowSource] = RowWriter("verdicts", insert_verdicts, max_queued=50_000)
