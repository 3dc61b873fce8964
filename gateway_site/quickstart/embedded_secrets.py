"""What an installation keeps in files of its own: secrets, where it was given none, and a SQLite database."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet


def load_or_create_secrets(directory: Path) -> dict[str, str]:
    """Read or make the installation's own secrets. Two processes that start at once agree on one set."""
    path = directory / "secrets.json"
    if not path.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=directory)  # readable by its owner alone
        with os.fdopen(descriptor, "w") as file:
            json.dump(_new_secrets(), file, indent=1)
        try:
            os.link(draft, path)  # fails, where a rename would replace the winner's file
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    loaded: dict[str, str] = json.loads(path.read_text())
    return loaded


def keep_private(database: Path) -> None:
    """
    Let nobody but the owner read a SQLite file, which holds sessions and password hashes.

    SQLite gives `-wal` and `-shm` the mode of the file itself. A directory that others made keeps its mode.
    """
    if not database.parent.is_dir():
        return  # whoever opens the file is told
    with contextlib.suppress(PermissionError):  # somebody else's file, which the owner shared with us
        os.close(os.open(database, os.O_CREAT | os.O_RDONLY, 0o600))
        for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
            if path.exists():
                path.chmod(0o600)


def _new_secrets() -> dict[str, str]:
    return {
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
    }
