from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from organization import services
from organization.audit.trail import Actor
from organization.lookups import find_project


class Command(OperatorCommand):
    help = "Archive a project: its keys admit no more inference."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", help="id or name")

    def perform(self, *, project: str, **options: Any) -> dict[str, Any]:
        archived = services.archive_project(
            project=find_project(project), actor=Actor.command("archive_project")
        )
        return {"id": str(archived.pk), "name": archived.name, "archived": True}

    def describe(self, outcome: dict[str, Any]) -> str:
        return f"Project {outcome['name']} ({outcome['id']}) is archived."
