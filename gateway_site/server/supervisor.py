"""The parent process of several workers, which replaces one that died."""

from __future__ import annotations

import logging
import time

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from gateway_site.server.stop_with_parent import worker_stop_seconds

logger = logging.getLogger(__name__)


class Supervisor(Multiprocess):
    """
    uvicorn's supervisor, with a bound on how long it waits for workers to stop.

    uvicorn replaces a worker that died, and one that does not answer its health check (a stopped one, for
    example). All workers accept from one listening socket, so a connection that the kernel has queued is
    taken by whichever of them runs.
    """

    def join_all(self) -> None:
        deadline = time.monotonic() + worker_stop_seconds()
        for worker in self.processes:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                logger.error("worker %s did not stop in time; killing it", worker.pid)
                worker.kill()
                worker.process.join()

    @property
    def has_failed_to_start(self) -> bool:
        return any(worker.exitcode == STARTUP_FAILURE for worker in self.processes)
