"""
Durable hold and settle pairs per second on one hot organization, beside the plain ORM, on both databases.

    python -m tests.benchmarks.ledger [--seconds 3] [--rounds 3] [--concurrency 1 16 64 256] [--json]
    python -m tests.benchmarks.ledger --here [...]      on the database server of the environment alone

Every commit is flushed to disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.benchmarks.environment import postgres_environment, sqlite_environment
from tests.harness.postgres import PostgresServer


def main() -> None:
    if "--here" in sys.argv:
        measure_here([word for word in sys.argv[1:] if word != "--here"])
        return
    command = [sys.executable, "-m", "tests.benchmarks.ledger", "--here", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as directory:
        embedded = sqlite_environment(directory)
        subprocess.run(command, env=embedded, check=True)
        with PostgresServer(fsync=True) as server:
            subprocess.run(command, env=embedded | postgres_environment(server), check=True)


def measure_here(words: list[str]) -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_site.settings")
    django.setup()

    from tests.benchmarks.ledger.command import BenchmarkLedger

    BenchmarkLedger().run_from_argv(["python -m", "tests.benchmarks.ledger", *words])


if __name__ == "__main__":
    main()
