"""Doors for the schedule. Each is a sweep over rows, so running it twice, or late, is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from billing.rollup import roll_up
from billing.sweeper import sweep

logger = logging.getLogger(__name__)


@shared_task
def roll_up_costs() -> None:
    moved = roll_up()
    if moved:
        logger.info("rolled up %d rows of costs", moved)


@shared_task
def sweep_reservations() -> None:
    sweep()
