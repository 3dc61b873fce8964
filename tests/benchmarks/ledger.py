"""
`benchmark_ledger` on both databases, with every commit flushed to disk.

    python -m tests.benchmarks.ledger [--seconds 3] [--rounds 3] [--concurrency 1 16 64 256]
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile

from cryptography.fernet import Fernet

from tests.harness.postgres import PostgresServer


def main() -> None:
    command = [sys.executable, "manage.py", "benchmark_ledger", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as directory:
        embedded = {**os.environ, "GATEWAY_DATA_DIR": directory, "DATABASE_URL": "", "LOG_LEVEL": "ERROR"}
        subprocess.run(command, env=embedded, check=True)
        with PostgresServer(fsync=True) as server:
            given = {
                "DATABASE_URL": server.url(),
                "SECRET_KEY": secrets.token_urlsafe(64),
                "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
                "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
            }
            subprocess.run(command, env=embedded | given, check=True)


if __name__ == "__main__":
    main()
