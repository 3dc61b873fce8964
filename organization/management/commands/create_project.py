from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from organization import services
from organization.audit.trail import Actor
from organization.lookups import find_organization


class Command(OperatorCommand):
    help = "Create a project in an organization, or find the active one of that name."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="id or name")
        parser.add_argument("name")

    def perform(self, *, organization: str, name: str, **options: Any) -> dict[str, Any]:
        project, is_new = services.create_project(
            organization=find_organization(organization), name=name, actor=Actor.command("create_project")
        )
        return {"id": str(project.pk), "name": project.name, "created": is_new}

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Created" if outcome["created"] else "There already is"
        return f"{verb} project {outcome['name']}: {outcome['id']}"
