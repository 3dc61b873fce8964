from __future__ import annotations

from itertools import chain
from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from organization.lookups import find_organization
from organization.models import ProjectKey


class Command(OperatorCommand):
    help = "List the keys of an organization and of its projects."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="id or name")

    def perform(self, *, organization: str, **options: Any) -> dict[str, Any]:
        owner = find_organization(organization)
        customer = ProjectKey.objects.filter(project__organization=owner).select_related("project")
        rows = chain(owner.admin_keys.order_by("created_at"), customer.order_by("created_at"))
        return {
            "keys": [
                {
                    "id": str(key.pk),
                    "name": key.name,
                    "redacted_value": key.redacted_value,
                    "project": key.project.name if isinstance(key, ProjectKey) else None,
                    "status": str(key.status),
                }
                for key in rows
            ]
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        lines = [
            f"{key['id']}  {key['status']:9}  {key['redacted_value']:12}"
            f"  {key['project'] or '(admin)'}  {key['name']}"
            for key in outcome["keys"]
        ]
        return "\n".join(lines) or "There are no keys yet; make one with create_admin_key."
