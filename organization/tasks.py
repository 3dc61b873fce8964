"""Scheduled tasks. Each is a sweep over rows, so running it twice or never is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from organization import expiring_secrets, idempotency
from organization.audit import chain

logger = logging.getLogger(__name__)


@shared_task
def erase_old_secrets() -> None:
    wiped = expiring_secrets.erase_old_secrets()
    logger.info("erased %d secrets that were past their day", wiped)


@shared_task
def prune_idempotency() -> None:
    forgotten = idempotency.prune_idempotency()
    logger.info("forgot %d idempotency keys", forgotten)


@shared_task
def verify_audit_trail() -> None:
    chain.link_new_events()
    chain.re_sign_head()
    found = chain.verify()
    for problem in found.problems:
        logger.error("the audit trail is not as the gateway wrote it: %s", problem.sentence)
    # For whoever keeps logs elsewhere: a database that was put back to an earlier state has another head.
    logger.info("the audit trail has %d linked events and the head %s", found.linked, found.head)
