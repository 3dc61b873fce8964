"""
Every attack at once against two workers on PostgreSQL, while a watched customer chats.

    python -m tests.e2e.siege --seconds 60

The gateway, a PostgreSQL, a Valkey and the backends are started for it on loopback and are gone afterwards.
In the middle of it Redis freezes and goes away, a worker is killed and the database freezes. It prints a
table of what the customer met and of what became of each attack, and exits with 1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from cryptography.fernet import Fernet

from tests.benchmarks.gateway.ours import new_database, run_python
from tests.benchmarks.gateway.process import Server
from tests.e2e.siege.console_attacks import csrf_token, login_request
from tests.e2e.siege.disturbances import Disturbances, Span, workers_memory_mib
from tests.e2e.siege.installation import READER
from tests.e2e.siege.raw_http import connection
from tests.e2e.siege.report import ATTACKED, CALM, Siege
from tests.e2e.siege.target import Target
from tests.e2e.siege.watched_customer import WatchedCustomer
from tests.harness.live_server import ROOT, free_port
from tests.harness.postgres import PostgresServer
from tests.harness.valkey import ValkeyServer

WORKERS = 2
WARM_UP_SECONDS = 3.0
CALM_SHARE, SETTLE_SECONDS = 0.1, 3.0
SAMPLE_SECONDS = 0.5
NICENESS = 10
# How long the attackers may take to start and to end, besides attacking.
END_SECONDS = 60.0


class AttackedGateway:
    """The gateway with everything it stands on."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self.postgres = stack.enter_context(PostgresServer())
        self.valkey = stack.enter_context(ValkeyServer())
        fast = self._serve(stack, "fast", ["-m", "tests.benchmarks.gateway.upstream"])
        faulty = self._serve(stack, "faulty", ["-m", "tests.inference.backends.upstreams.faulty.server"])
        lower_priority(faulty.process.pid)
        (folder / "static").mkdir(exist_ok=True)  # no page's files are looked at
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
            "GATEWAY_DATA_DIR": str(folder),
            "DATABASE_URL": new_database(self.postgres, "siege"),
            "REDIS_URL": self.valkey.url,
            "CELERY_BROKER_URL": "memory://",
            "SECRET_KEY": secrets.token_urlsafe(64),
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
            "GATEWAY_DRAIN_SECONDS": "5",
            "PATH": "/usr/bin:/bin",
        }
        words = ["-m", "tests.e2e.siege.installation"]
        urls = [f"http://127.0.0.1:{server.port}" for server in (fast, faulty)]
        self.made = run_python([*words, *urls], self.environment)
        self.server = self._serve(
            stack, "gateway", ["manage.py", "serve", "--workers", str(WORKERS)], environment=self.environment
        )

    def _serve(
        self,
        stack: ExitStack,
        name: str,
        words: list[str],
        *,
        environment: dict[str, str] | None = None,
    ) -> Server:
        port = free_port()
        command = [sys.executable, *words, "--port", str(port)]
        server = Server(command, port=port, log=self.folder / f"{name}.log", environment=environment)
        stack.callback(server.stop)
        return server

    @property
    def process_id(self) -> int:
        return self.server.process.pid

    def audit(self) -> dict[str, object]:
        books: dict[str, dict[str, object]] = run_python(
            ["-m", "tests.benchmarks.gateway.setup", "books"], self.environment
        )
        return books["audit"]


async def log_in(port: int, password: str) -> str:
    """The session cookie of the person who may only look."""
    request = login_request(port, await csrf_token(port), READER, password)
    async with asyncio.timeout(20), connection(port) as (reader, writer):
        writer.write(request)
        content = await reader.read()
    found = re.search(rb"(?i)set-cookie: (sessionid=[^;]+)", content)
    if found is None:
        raise RuntimeError(f"Nobody could log in: {content[:500]!r}")
    return found[1].decode()


async def run_siege(gateway: AttackedGateway, options: argparse.Namespace) -> Siege:
    made, port = gateway.made, gateway.server.port
    warm_up = WatchedCustomer(port, made["watched_key"])
    await warm_up.go_on(WARM_UP_SECONDS)
    cookie = await log_in(port, made["password"])
    target = Target(port, made["poor_key"], made["key"], made["admin_key"], cookie)
    before = max(workers_memory_mib(gateway.process_id).values())
    watched = WatchedCustomer(port, made["watched_key"])
    calm = Span(time.monotonic())
    await watched.go_on(options.seconds * CALM_SHARE)
    calm.end = time.monotonic()
    attacked = Span(calm.end, float("inf"))
    disturbances = Disturbances(options.seconds, gateway.postgres, gateway.valkey, gateway.process_id)
    memory = MemoryWatch(gateway.process_id)
    attacks, *_ = await asyncio.gather(
        _attack(target, options),
        watched.go_on(options.seconds),
        disturbances.happen(),
        memory.go_on(options.seconds),
    )
    attacked.end = time.monotonic()
    await asyncio.sleep(SETTLE_SECONDS)
    after = max(workers_memory_mib(gateway.process_id).values())
    gateway.server.stop()
    return Siege(
        samples=watched.samples,
        spans={CALM: calm, **disturbances.spans, ATTACKED: attacked},
        attacks=attacks,
        memory_before_mib=before,
        memory_after_mib=after,
        memory_peak_mib=memory.peak_mib,
        audit=gateway.audit(),
        most_wait_seconds=options.most_wait_seconds,
        most_growth_mib=options.most_growth_mib,
    )


async def _attack(target: Target, options: argparse.Namespace) -> dict[str, dict[str, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.e2e.siege.attackers",
        target.dumps(),
        str(options.seconds),
        options.only,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    lower_priority(process.pid)
    try:
        async with asyncio.timeout(options.seconds + END_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError("The attackers failed.")
    seen: dict[str, dict[str, int]] = json.loads(out)
    return seen


def lower_priority(process_id: int) -> None:
    """Attackers have machines of their own; here they yield the processor to what is measured."""
    os.setpriority(os.PRIO_PROCESS, process_id, NICENESS)
    # Where Linux shares the processor among sessions, a process is nice only to those of its own.
    group = Path(f"/proc/{process_id}/autogroup")
    with contextlib.suppress(OSError):
        group.write_text(str(NICENESS))


class MemoryWatch:
    """The most private memory that one worker had."""

    def __init__(self, process_id: int) -> None:
        self.peak_mib = 0.0
        self._process_id = process_id

    async def go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            figures = await asyncio.to_thread(workers_memory_mib, self._process_id)
            self.peak_mib = max(self.peak_mib, *figures.values())
            await asyncio.sleep(SAMPLE_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--most-wait-seconds", type=float, default=1.0)
    parser.add_argument("--most-growth-mib", type=float, default=100.0)
    parser.add_argument("--only", default="", help="the attacks whose names hold these words")
    parser.add_argument("--keep", type=Path, help="where to keep the logs of the processes")
    options = parser.parse_args(arguments)
    # Told to stop, it stops what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="gw-siege-"))
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        siege = asyncio.run(run_siege(AttackedGateway(stack, folder), options))
    sys.stdout.write(siege.markdown())
    return 0 if all(siege.verdicts().values()) else 1


if __name__ == "__main__":
    sys.exit(main())
