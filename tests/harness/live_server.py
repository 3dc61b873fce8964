"""Real servers, as processes of their own, on the database of the test."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
# Settings of a server that limits nobody.
UNLIMITED = {"GATEWAY_REQUESTS_PER_MINUTE": "0", "GATEWAY_CONCURRENCY": "0"}
READY_WORDS = ("Uvicorn running on", "Listening on TCP address")


# Where the system takes no port for an outgoing connection, nor for whoever asks for any: between our look
# and the server's start nobody is given it.
PORTS = range(15_000, 32_000)


def free_port() -> int:
    while True:
        # Not from the generator that everybody shares: Hypothesis seeds it alike in all workers.
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class LiveServer:
    """A process that serves on loopback, and everything it wrote."""

    def __init__(self, command: list[str], environment: dict[str, str], port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.port = port
        self.output: list[str] = []
        self._is_ready = threading.Event()
        self._ended = threading.Event()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if any(words in line for words in READY_WORDS):
                self._is_ready.set()
        self._ended.set()
        self._is_ready.set()  # whoever waits looks at the output

    def wait_until_ready(self) -> None:
        assert self._is_ready.wait(START_SECONDS), self.output
        # The supervisor of several workers speaks before the first of them listens.
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            self._ended.wait(0.02)
        raise AssertionError(self.output)

    def stop(self) -> int:
        """End the server as an operator would, and its whole family if it does not obey."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._reader.join(10)
        if self.process.stdout:
            self.process.stdout.close()
        return status


@contextlib.contextmanager
def live_server(
    environment: dict[str, str],
    *,
    workers: int = 1,
    server: str = "serve",
    settings: dict[str, str] | None = None,
    settings_module: str = "gateway_site.settings",
    has_scheduled_work: bool = False,
) -> Iterator[LiveServer]:
    """`manage.py serve`, or daphne, with these settings."""
    port = free_port()
    static_files = Path(environment["GATEWAY_DATA_DIR"]) / "static"
    static_files.mkdir(parents=True, exist_ok=True)  # no page is looked at, so no file is collected
    if server == "serve":
        command = [sys.executable, "manage.py", "serve", "--port", str(port), "--workers", str(workers)]
    else:
        command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port)]
        command += ["gateway_site.asgi:application"]
    inherited = {**environment, "DJANGO_SETTINGS_MODULE": settings_module}
    if not has_scheduled_work:
        # With a broker of its own there is no worker beside the server, which takes longer to start than it.
        inherited["CELERY_BROKER_URL"] = "memory://"
    running = LiveServer(command, {**inherited, **(settings or {})}, port)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()
