from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.console import roles, users
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor

ROLES = {role.lower(): role for role in roles.ROLES}


class Command(OperatorCommand):
    help = "Let a person use the console, with a role, and print their first password once."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--role", choices=list(ROLES), required=True)

    def perform(self, *, name: str, role: str, **options: Any) -> dict[str, Any]:
        created = users.create_user(
            username=name, role=ROLES[role], actor=Actor.command("create_console_user")
        )
        return {
            "username": created.user.username,
            "role": users.role_of(created.user),
            "password": created.password,
            "created": created.password is not None,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        if not outcome["created"]:
            role = outcome["role"] or "no role"
            return f"{outcome['username']} exists already ({role}) and is left as they are."
        return (
            f"User {outcome['username']}: {outcome['role']}\n"
            f"{outcome['password']}\n"
            "This is the only time the password is shown. They can change it in the console."
        )
