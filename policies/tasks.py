"""Scheduled tasks of policies. Each is a sweep over rows, so running it twice or never is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from policies.verdicts import retention

logger = logging.getLogger(__name__)


@shared_task
def prune_verdicts() -> None:
    forgotten = retention.prune_verdicts()
    logger.info("forgot %d verdicts", forgotten)
