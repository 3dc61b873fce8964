"""Doors for the schedule. Each is a sweep over rows, so running it twice or never is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from organization import idempotency, vault

logger = logging.getLogger(__name__)


@shared_task
def erase_old_secrets() -> None:
    wiped = vault.erase_old_secrets()
    logger.info("erased %d secrets that were past their day", wiped)


@shared_task
def prune_idempotency() -> None:
    forgotten = idempotency.prune_idempotency()
    logger.info("forgot %d idempotency keys", forgotten)
