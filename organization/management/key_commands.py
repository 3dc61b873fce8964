"""Base classes of the commands that create keys, and of those that change their status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.core.management.base import CommandParser
from django.utils import timezone

from gateway_site.api.errors import InvalidRequest
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor
from organization.lookups import find_key
from organization.services import NewKey

# Longer than any key should live, and short enough for every calendar.
MAX_EXPIRY_SECONDS = 100 * 366 * 24 * 3600


class KeyCreationCommand(OperatorCommand):
    """Prints a key's value: the only time that anyone sees it."""

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("owner", help="id or name")
        parser.add_argument("name", help="what the key is for")
        parser.add_argument(
            "--permission",
            action="append",
            dest="permissions",
            metavar="P",
            help="may be repeated; every permission of the kind if not given",
        )
        parser.add_argument("--expires-in", type=int, metavar="SECONDS")

    def outcome_of(self, made: NewKey[Any]) -> dict[str, Any]:
        return {
            "id": str(made.key.pk),
            "name": made.key.name,
            "value": made.value,
            "permissions": made.key.permissions,
            "expires_at": int(made.key.expires_at.timestamp()) if made.key.expires_at else None,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        return (
            f"Key {outcome['name']}: {outcome['id']}\n"
            f"{outcome['value']}\n"
            "This is the only time the value is shown."
        )


def expiry(seconds: int | None) -> datetime | None:
    """The moment that is this many seconds from now."""
    if seconds is None:
        return None
    if not 1 <= seconds <= MAX_EXPIRY_SECONDS:
        raise InvalidRequest(f"--expires-in is from 1 to {MAX_EXPIRY_SECONDS} seconds.")
    return timezone.now() + timedelta(seconds=seconds)


class KeyStatusCommand(OperatorCommand):
    """Finds a project or admin key by its id and hands it to one service."""

    verb: ClassVar[str]
    service: ClassVar[Callable[..., Any]]

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")

    def perform(self, *, id: str, **options: Any) -> dict[str, Any]:
        key = type(self).service(key=find_key(id), actor=Actor.command(f"{self.verb}_key"))
        return {"id": str(key.pk), "name": key.name, "status": str(key.status)}

    def describe(self, outcome: dict[str, Any]) -> str:
        return f"Key {outcome['name']} ({outcome['id']}) is {outcome['status']}."
