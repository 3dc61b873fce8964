from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from organization import services
from organization.audit.trail import Actor


class Command(OperatorCommand):
    help = "Create an organization, or find the one of that name."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def perform(self, *, name: str, **options: Any) -> dict[str, Any]:
        organization, is_new = services.create_organization(
            name=name, actor=Actor.command("create_organization")
        )
        return {"id": str(organization.pk), "name": organization.name, "created": is_new}

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Created" if outcome["created"] else "There already is"
        return f"{verb} organization {outcome['name']}: {outcome['id']}"
