"""Typed reading of environment variables. A wrong value fails at start, with the variable's name."""

from __future__ import annotations

import ipaddress
import os
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import environ
from django.core.exceptions import ImproperlyConfigured

TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default).strip()


def secret(name: str, default: str = "") -> str:
    """The value of `name`, or the contents of the file that `<name>_FILE` points at."""
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return text(name, default)
    if os.environ.get(name):
        raise ImproperlyConfigured(f"Set {name} or {name}_FILE, not both.")
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error.strerror}: {path}") from None


def integer(name: str, default: int, *, minimum: int = 0) -> int:
    value = text(name) or str(default)
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from None
    if number < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {number}.")
    return number


def refuse_removed(name: str, remedy: str) -> None:
    """Stop at a variable that means nothing any more: whoever still sets it relies on what it did."""
    if text(name):
        raise ImproperlyConfigured(f"{name} is not read any more. {remedy}")


def boolean(name: str, default: bool) -> bool:
    value = text(name, str(default)).lower()
    if value in TRUE_WORDS:
        return True
    if value in FALSE_WORDS:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")


def choice(name: str, default: str, allowed: list[str]) -> str:
    value = text(name, default)
    if value.upper() not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(allowed)}, not {value!r}.")
    return value.upper()


def comma_separated(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


def hosts_and_networks(name: str) -> list[str]:
    """Read host names, addresses and networks, separated by commas."""
    found = comma_separated(name)
    for each in found:
        if "/" in each:
            try:
                ipaddress.ip_network(each, strict=False)
            except ValueError:
                raise ImproperlyConfigured(f"{name} holds {each!r}, which is not a network.") from None
    return found


def database(name: str) -> dict[str, Any]:
    """Django's settings for the database at the URL in `name`."""
    with warnings.catch_warnings():
        # The library's warning and its exceptions repeat the URL, which holds a password.
        warnings.simplefilter("ignore")
        try:
            settings: dict[str, Any] = environ.Env.db_url_config(secret(name))
        except (ValueError, KeyError, environ.ImproperlyConfigured):
            settings = {}
    if settings.get("ENGINE") not in ("django.db.backends.postgresql", "django.db.backends.sqlite3"):
        raise ImproperlyConfigured(f"{name} must be the URL of a PostgreSQL or SQLite database.")
    # A Unix socket is given as a percent-encoded host.
    settings["HOST"] = unquote(settings.get("HOST", ""))
    return settings
