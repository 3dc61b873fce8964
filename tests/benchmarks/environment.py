"""The environment of a process that measures on a database of its own, and what the process prints."""

from __future__ import annotations

import os
import secrets
import sys

from cryptography.fernet import Fernet

from tests.harness.postgres import PostgresServer


def sqlite_environment(directory: str) -> dict[str, str]:
    """An installation with nothing set up, with its data in a directory."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
        "GATEWAY_DATA_DIR": directory,
        "LOG_LEVEL": "ERROR",
        "DATABASE_URL": "",
    }


def postgres_environment(server: PostgresServer) -> dict[str, str]:
    """The variables that an installation on PostgreSQL adds."""
    return {
        "DATABASE_URL": server.url(),
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
