"""The production server: uvicorn workers and, where no broker is configured, a Celery worker beside them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import uvicorn
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from uvicorn.config import STARTUP_FAILURE

from gateway_site.health import pending_migrations
from gateway_site.server.connections import raise_open_files_limit
from gateway_site.server.parent_watch import PARENT_VARIABLE
from gateway_site.server.supervisor import Supervisor

logger = logging.getLogger(__name__)

RESTART_PAUSE_SECONDS = 5
STOP_SECONDS = 10
# Longer than the clients' own keep-alive, so that it is the client who lets go of an idle connection
# and never finds it closed under a request.
KEEP_ALIVE_SECONDS = 75


def prepare_static_files() -> None:
    """Put the console's files where the server finds them; only what changed is copied."""
    call_command("collectstatic", interactive=False, verbosity=0)


def run(*, host: str, port: int, workers: int) -> None:
    """Serve until told to stop."""
    if missing := pending_migrations():
        raise CommandError(f"The database lacks {len(missing)} migrations; run `manage.py migrate` first.")
    require_free(host, port)
    raise_open_files_limit()
    if not settings.STATIC_ROOT.is_dir():
        prepare_static_files()
    # uvicorn drains and then raises the signal again, which would end this process on the spot and
    # leave what runs beside it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = uvicorn.Config(
        "gateway_site.asgi:application",
        host=host,
        port=port,
        http="gateway_site.server.http_protocol:HttpProtocol",
        workers=workers,
        lifespan="on",
        access_log=False,
        log_config=None,
        # X-Forwarded-For is read by `ratelimit.client_address`, which knows how many proxies are ours.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.GATEWAY_DRAIN_SECONDS,
    )
    with scheduled_work() if settings.IS_BROKER_EMBEDDED else contextlib.nullcontext():
        if workers > 1:
            _serve_by_workers(config)
        else:
            _serve_here(config)


def _serve_here(config: uvicorn.Config) -> None:
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _serve_by_workers(config: uvicorn.Config) -> None:
    supervisor = Supervisor(config, [config.bind_socket()])
    supervisor.run()
    if supervisor.has_failed_to_start:
        sys.exit(STARTUP_FAILURE)


def scheduled_work() -> AbstractContextManager[Child]:
    """A child that is a Celery worker, with beat in one of its threads."""
    return kept_running("the Celery worker", _worker_command())


class Child:
    """A process of ours, and the one that took its place if it ended."""

    def __init__(self, what: str, command: list[str]) -> None:
        self._what = what
        self._command = command
        self._is_over = threading.Event()
        self._turn = threading.Lock()  # so that nothing is started again behind the back of `stop`
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep_running, name=f"keeper of {what}", daemon=True)
        self._keeper.start()

    @property
    def status(self) -> int | None:
        """The exit status while it is not running."""
        return self._process.poll()

    def stop(self) -> None:
        with self._turn:
            self._is_over.set()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._process.kill()
        self._keeper.join(STOP_SECONDS)

    def _keep_running(self) -> None:
        while True:
            status = self._process.wait()
            self._is_over.wait(RESTART_PAUSE_SECONDS)
            with self._turn:
                if self._is_over.is_set():
                    return
                logger.warning("%s ended with status %d; starting it again", self._what, status)
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            self._command,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            # Ctrl-C goes to the whole group; the child is to be told by us, once the server has drained.
            start_new_session=True,
        )


@contextlib.contextmanager
def kept_running(what: str, command: list[str]) -> Iterator[Child]:
    """A child that is started again if it ends, and ends with us."""
    child = Child(what, command)
    try:
        yield child
    finally:
        child.stop()


def _worker_command() -> list[str]:
    options = ["--pool", "threads", "--concurrency", "1"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    return [sys.executable, "-m", "celery", "--app", "gateway_site", "--quiet", "worker", *options, *quiet]


def require_free(host: str, port: int) -> None:
    """Say it in one line if somebody listens there already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
