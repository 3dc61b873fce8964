"""The gateway itself, as `manage.py serve` runs it: a database of its own each, and every account kept."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from cryptography.fernet import Fernet
from psycopg import sql

from tests.benchmarks.gateway.load import Address, Measured
from tests.benchmarks.gateway.targets import Bench, Target
from tests.harness.live_server import ROOT, free_port
from tests.harness.postgres import PostgresServer

# So high that nobody is refused and the counting is done all the same.
LIMITS = {"GATEWAY_REQUESTS_PER_MINUTE": str(10**9), "GATEWAY_CONCURRENCY": str(10**6)}
NOT_OURS = ("LOG_LEVEL", "REDIS_URL", "CELERY_BROKER_URL", "DATABASE_URL", "DEBUG")
COMMAND_SECONDS = 600


@dataclass
class Gateway:
    """One installation, with everything that clients were told by it."""

    name: str
    workers: int
    environment: dict[str, str]
    keys: list[str]
    answered: int = 0
    cut: int = 0
    failed: int = 0
    target: Target | None = None
    books: dict[str, Any] = field(default_factory=dict)

    def note(self, measured: Measured) -> None:
        self.answered += measured.answered
        self.cut += measured.cut
        self.failed += sum(measured.errors.values())

    def audit(self) -> dict[str, Any]:
        """The books after the server has ended: nothing is under way any more."""
        books = run_python(["-m", "tests.benchmarks.gateway.setup", "books"], self.environment)
        ended = books["reservations"]
        settled = sum(count for state, count in ended.items() if state.startswith("settled"))
        # Whoever was cut off may have been settled, released, or be unknown for now; nobody else may.
        is_counted = (
            self.answered <= settled and sum(ended.values()) <= self.answered + self.cut + self.failed
        )
        self.books = books | {
            "answered": self.answered,
            "cut": self.cut,
            "failed": self.failed,
            "settled": settled,
            "is_right": bool(books["audit"]["ok"] and is_counted and "held" not in ended),
            "complaints": self.target.server.complaints() if self.target else {},
        }
        return self.books


def install(bench: Bench, name: str, *, workers: int, organizations: int, database_url: str = "") -> Gateway:
    """A new database with customers, credit and models in it."""
    folder = bench.directory / name.replace(" ", "-")
    (folder / "static").mkdir(parents=True)  # no page is looked at, so no file is collected
    environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    environment |= LIMITS | {
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
        "GATEWAY_DATA_DIR": str(folder),
        "DATABASE_URL": database_url,
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
    }
    words = ["-m", "tests.benchmarks.gateway.setup", "prepare", bench.upstream_url, str(organizations)]
    made = run_python([*words, *bench.models], environment)
    return Gateway(name, workers, environment, made["keys"])


def start(bench: Bench, gateway: Gateway, postgres: PostgresServer | None) -> Target:
    port = free_port()
    command = [sys.executable, "manage.py", "serve", "--port", str(port), "--workers", str(gateway.workers)]
    server = bench.serve(gateway.name.replace(" ", "-"), command, port, gateway.environment)
    target = Target(
        gateway.name,
        Address(port, gateway.keys[:1]),
        server,
        database_process_id=postgres.process_id if postgres else None,
    )
    gateway.answered += 1  # the request that tells whether it is ready
    gateway.target = bench.ready(target)
    return gateway.target


def new_database(postgres: PostgresServer, name: str) -> str:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return postgres.url(name)


def run_python(words: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{run.stderr[-2000:]}")
    outcome: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return outcome
