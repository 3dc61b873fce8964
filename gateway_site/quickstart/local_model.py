"""The small model of `quickstart`: a child process that serves it, where that can be had."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings

from gateway_site.http_client.ssrf_guard import AddressRefused, parse_base_url
from gateway_site.quickstart.llama_server import missing_part
from gateway_site.server.child_process import ChildProcess, supervised_child

HOST = "127.0.0.1"
START_SECONDS = 60
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Where the local model is served, or the one line that says why it is not."""

    base_url: str = ""
    problem: str = ""


@contextlib.contextmanager
def running(*, preferred_port: int) -> Iterator[LocalModel]:
    """Run the model for as long as the context lasts, started again if it ends."""
    if problem := missing_part() or _refusal():
        yield LocalModel(problem=problem)
        return
    port = _free_port(preferred_port)
    command = [sys.executable, "-m", "gateway_site.quickstart.llama_server"]
    command += ["--port", str(port), "--parent", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(supervised_child("the local model", command))
        problem = _wait_until_ready(child, port)
        if problem:
            stack.close()
            yield LocalModel(problem=problem)
        else:
            yield LocalModel(base_url=f"http://{HOST}:{port}/v1")


def _refusal() -> str | None:
    try:
        parse_base_url(f"http://{HOST}", allowed_hosts=settings.GATEWAY_BACKEND_HOSTS)
    except AddressRefused:
        return f"GATEWAY_BACKEND_HOSTS does not list {HOST}"
    return None


def _wait_until_ready(child: ChildProcess, port: int) -> str:
    """Return "" once the model answers, or what became of it. An unfit processor shows here, too."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        status = child.status
        if status is not None:
            return f"it ended while starting ({_describe_exit(status)})"
        if _is_healthy(port):
            return ""
        time.sleep(POLL_SECONDS)
    return f"it was not ready within {START_SECONDS} seconds"


def _describe_exit(status: int) -> str:
    if status == -signal.SIGILL:
        return "this processor lacks instructions that it needs"
    return f"status {status}"


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet
    finally:
        connection.close()


def _free_port(preferred: int) -> int:
    """The preferred port if it is free, so that the address mostly stays the same from run to run."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError):
                continue
            found: int = probe.getsockname()[1]
            return found
    raise OSError("no port is free")
