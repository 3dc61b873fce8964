"""Scheduled work: Celery's beat, in a thread of the worker where no broker is configured."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

from celery import Celery, beat
from celery.signals import worker_init, worker_shutting_down
from django.conf import settings

from gateway_site.server.stop_with_parent import stop_with_parent

# How often beat looks at the schedule at least, and so notices that it is to stop.
BEAT_SECONDS = 1
# How long after the start a task runs at the latest, however seldom it runs.
FIRST_RUN = timedelta(minutes=5)


class Scheduler(beat.Scheduler):
    """
    Celery's scheduler without its file, which does not pause when the clock is set back.

    The file would remember when each task ran last, and one that a crash or a full disk left damaged would
    keep beat from starting. Instead, what is due every few hours first runs minutes after the start.
    """

    def setup_schedule(self) -> None:
        """Read the schedule from the settings."""
        super().setup_schedule()
        for entry in self.schedule.values():
            entry.last_run_at -= max(timedelta(), entry.schedule.run_every - FIRST_RUN)

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due. Returns the seconds until the next tick."""
        for entry in self.schedule.values():
            now = entry.default_now()
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._heap = None  # ordered by the times before
        seconds: float = super().tick(*args, **options)
        return seconds


class EmbeddedBeat(threading.Thread):
    """
    Beat inside the worker, whose memory is the broker.

    `celery worker --beat` would fork a process, which shares no memory with the worker and outlives its
    SIGKILL.
    """

    def __init__(self, app: Celery) -> None:
        super().__init__(name="beat", daemon=True)
        self._service = beat.Service(
            app, max_interval=BEAT_SECONDS, scheduler_cls=Scheduler, remote_control=False
        )
        self._is_stopping = False

    def run(self) -> None:
        try:
            self._service.start()
        finally:
            if not self._is_stopping:
                # Without beat the worker would idle for ever: it ends, and is started again with a new one.
                os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        self._is_stopping = True
        self._service.stop()


@worker_init.connect
def prepare_worker(sender: Any, **_: Any) -> None:
    """Prepare a Celery worker before it takes its first message."""
    stop_with_parent()
    if settings.IS_BROKER_EMBEDDED:
        # What is sent from here is read here; every other process runs what it sends itself.
        sender.app.conf.task_always_eager = False
        embedded = EmbeddedBeat(sender.app)
        worker_shutting_down.connect(lambda **_: embedded.stop(), weak=False)
        embedded.start()
