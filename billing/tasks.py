"""Tasks of the schedule. Each is a sweep over rows, so running it twice, or late, is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from billing.ledger.audits import audit_and_record
from billing.ledger.sweeper import LeaseWatch, sweep
from billing.reports.rollup import roll_up

logger = logging.getLogger(__name__)

# From one sweep to the next.
_watch = LeaseWatch()


@shared_task
def roll_up_costs() -> None:
    moved = roll_up()
    if moved:
        logger.info("rolled up %d rows of costs", moved)


@shared_task
def sweep_reservations() -> None:
    sweep(_watch)


@shared_task
def audit_ledger() -> None:
    broken = [check.invariant.name for check in audit_and_record() if check.count]
    if broken:
        logger.error("the ledger's invariants are broken: %s", ", ".join(broken))
