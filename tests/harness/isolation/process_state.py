"""What a process remembers, and does behind a test's back; neither is for the next test."""

from __future__ import annotations

import threading
from typing import Any

from django.core.cache import cache

from billing.ledger.ledger import close_ledger
from gateway_site.console.live_tail.consumer import watching
from gateway_site.console.live_tail.poller import poller
from gateway_site.database.row_writer import RowWriter
from gateway_site.health import readiness
from inference.activity import writer as activity_writer
from inference.catalog import served_models
from inference.serving import authentication
from inference.serving.lifecycle import request_task
from inference.serving.load_balancing.load_balancer import load_balancer
from policies.enforcement.background_judging import background
from policies.enforcement.judging import score_cache
from policies.enforcement.publication_cache import publications
from policies.verdicts import writer as verdict_writer

# By the names that they are given. They have connections of their own, and write when they get to it.
THREADS = {"ledger", "sweeper", "policies", "activity", "verdicts"}
WRITERS: dict[str, RowWriter[Any]] = {"activity": activity_writer.writer, "verdicts": verdict_writer.writer}


def forget() -> None:
    """Rate limits, catalog, keys, circuits, scores."""
    cache.clear()
    readiness.forget()
    served_models.forget()
    authentication.forget()
    load_balancer.forget()
    score_cache.clear()


def take_away() -> list[str]:
    """What is still going on, which is ended here; what was still to be written is not."""
    left = [f"a thread, {each.name}" for each in threading.enumerate() if each.name in THREADS]
    left += [f"notes for {name}" for name, writer in WRITERS.items() if writer.pending]
    left += ["requests"] * bool(request_task.running_requests) + ["judging"] * bool(background.running)
    left += ["a live tail"] * bool(watching or poller.is_running)
    if left:
        for writer in WRITERS.values():
            writer.discard()
            writer.close(5)
        publications.close()
        close_ledger(5)
        request_task.running_requests.clear()
        background.forget()
        watching.clear()
    return left
