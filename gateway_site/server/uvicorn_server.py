"""The production server: uvicorn workers and, where no broker is configured, a Celery worker next to them."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from contextlib import AbstractContextManager

import uvicorn
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from uvicorn.config import STARTUP_FAILURE

from gateway_site.health import pending_migrations
from gateway_site.server.child_process import ChildProcess, supervised_child
from gateway_site.server.connection_table import raise_open_files_limit
from gateway_site.server.supervisor import Supervisor

# Longer than the clients' own keep-alive, so that it is the client who lets go of an idle connection
# and never finds it closed under a request.
KEEP_ALIVE_SECONDS = 75


def prepare_static_files() -> None:
    """Put the console's files where the server finds them; only what changed is copied."""
    call_command("collectstatic", interactive=False, verbosity=0)


def run(*, host: str, port: int, workers: int) -> None:
    """Serve until a signal says to stop."""
    if missing := pending_migrations():
        raise CommandError(f"The database lacks {len(missing)} migrations; run `manage.py migrate` first.")
    require_free_port(host, port)
    raise_open_files_limit()
    if not settings.STATIC_ROOT.is_dir():
        prepare_static_files()
    # uvicorn drains and then raises the signal again, which would end this process on the spot and
    # leave its child processes behind.
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
        # X-Forwarded-For is read by `limits.client_address`, which knows how many proxies are ours.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.GATEWAY_DRAIN_SECONDS,
    )
    with run_scheduled_work() if settings.IS_BROKER_EMBEDDED else contextlib.nullcontext():
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


def run_scheduled_work() -> AbstractContextManager[ChildProcess]:
    """Run a Celery worker as a child process, with beat in one of its threads."""
    return supervised_child("the Celery worker", celery_worker_command())


def celery_worker_command() -> list[str]:
    options = ["--pool", "threads", "--concurrency", "1"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    return [sys.executable, "-m", "celery", "--app", "gateway_site", "--quiet", "worker", *options, *quiet]


def require_free_port(host: str, port: int) -> None:
    """Raise a CommandError of one line if somebody listens there already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
