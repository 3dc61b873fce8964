"""Processes that end with the one that started them, however that one ended: SIGKILL runs no handler."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time

from django.conf import settings

logger = logging.getLogger(__name__)

# How a child that is not Python's own `multiprocessing` is told its parent's process id.
PARENT_VARIABLE = "GATEWAY_PARENT_PROCESS"
POLL_SECONDS = 0.5
# After the requests have drained: to settle what was aborted, empty the queues and close connections.
CLEAN_UP_SECONDS = 45


def worker_stop_seconds() -> int:
    """The longest that a worker may take from SIGTERM to its end."""
    return int(settings.GATEWAY_DRAIN_SECONDS) + CLEAN_UP_SECONDS


def stop_with_parent() -> None:
    """
    Stop this process as SIGTERM would, once its parent is gone; do nothing where none was named.

    The parent's id is compared rather than asked for here: a parent that ended before this call is noticed,
    too. PR_SET_PDEATHSIG would need that check as well, and is bound to the thread that forked.
    """
    parent = _parent_process_id()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()


def _parent_process_id() -> int | None:
    spawned_by = multiprocessing.parent_process()
    if spawned_by is not None:
        return spawned_by.pid
    named = os.environ.get(PARENT_VARIABLE)
    return int(named) if named else None


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    logger.warning("the parent process %d is gone; stopping", parent)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(worker_stop_seconds())
    logger.error("not stopped within %d seconds; ending at once", worker_stop_seconds())
    os._exit(1)
