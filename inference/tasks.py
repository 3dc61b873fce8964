"""Celery tasks of inference. Each is a sweep over rows, so running it twice, or late, is no harm."""

from __future__ import annotations

import logging

from celery import shared_task

from inference.catalog.probes import probe

logger = logging.getLogger(__name__)


@shared_task
def probe_backends() -> None:
    for finding in probe():
        if finding.problem:
            logger.warning("backend %s: %s", finding.backend.name, finding.problem)
