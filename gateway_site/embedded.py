"""The secrets of an installation that was given none: made once, kept in the data directory."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet


def load_or_create_secrets(directory: Path) -> dict[str, str]:
    """The installation's own secrets. Two processes that start at once agree on one set."""
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


def _new_secrets() -> dict[str, str]:
    return {
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
    }
