"""What a process remembers, and does behind a test's back; neither is for the next test."""

from __future__ import annotations

import threading
from typing import Any

from django.core.cache import cache

from billing.ledger import close_ledger
from gateway_site.console.live_tail.consumer import watching
from gateway_site.console.live_tail.poller import poller
from gateway_site.database.row_writer import RowWriter
from gateway_site.health import readiness
from inference import activity_writer, authentication, catalog, deployments, generation
from policies import verdict_writer
from policies.background import background
from policies.epochs import reader
from policies.panel import memory

# By the names that they are given. They have connections of their own, and write when they get to it.
THREADS = {"ledger", "sweeper", "policies", "activity", "verdicts"}
WRITERS: dict[str, RowWriter[Any]] = {"activity": activity_writer.writer, "verdicts": verdict_writer.writer}


def forget() -> None:
    """Rate limits, catalog, keys, circuits, scores."""
    cache.clear()
    readiness.forget()
    catalog.forget()
    authentication.forget()
    deployments._deployments._circuits.clear()
    memory.forget()


def take_away() -> list[str]:
    """What is still going on, which is ended here; what was still to be written is not."""
    left = [f"a thread, {each.name}" for each in threading.enumerate() if each.name in THREADS]
    left += [f"notes for {name}" for name, writer in WRITERS.items() if writer._waiting]
    left += ["requests"] * bool(generation.flights) + ["judging"] * bool(background._tasks)
    left += ["a live tail"] * bool(watching or poller.is_running)
    if left:
        for writer in WRITERS.values():
            writer._waiting.clear()
            writer.close(5)
        reader.close()
        close_ledger(5)
        generation.flights.clear()
        background._tasks.clear()
        watching.clear()
    return left
