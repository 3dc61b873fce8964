"""Child processes that are restarted when they end, and stopped with the process that started them."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Iterator

from gateway_site.server.stop_with_parent import PARENT_VARIABLE

logger = logging.getLogger(__name__)

RESTART_PAUSE_SECONDS = 5
STOP_SECONDS = 10


class ChildProcess:
    """A child process, started again a few seconds after it ended."""

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        self._command = command
        self._is_over = threading.Event()
        self._lock = threading.Lock()  # so that nothing is started again behind the back of `stop`
        self._process = self._start()
        self._restarter = threading.Thread(target=self._restart, name=f"restarter of {name}", daemon=True)
        self._restarter.start()

    @property
    def status(self) -> int | None:
        """The exit status while the process is not running, else None."""
        return self._process.poll()

    def stop(self) -> None:
        with self._lock:
            self._is_over.set()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._process.kill()
        self._restarter.join(STOP_SECONDS)

    def _restart(self) -> None:
        while True:
            status = self._process.wait()
            self._is_over.wait(RESTART_PAUSE_SECONDS)
            with self._lock:
                if self._is_over.is_set():
                    return
                logger.warning("%s ended with status %d; starting it again", self._name, status)
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            self._command,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            # Ctrl-C goes to the whole group; the child is to be told by us, once the server has drained.
            start_new_session=True,
        )


@contextlib.contextmanager
def supervised_child(name: str, command: list[str]) -> Iterator[ChildProcess]:
    """Run a child process that is started again if it ends, and ends with the context."""
    child = ChildProcess(name, command)
    try:
        yield child
    finally:
        child.stop()
