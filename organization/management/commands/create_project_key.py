from __future__ import annotations

from typing import Any

from organization import services
from organization.audit.trail import Actor
from organization.lookups import find_project
from organization.management.key_commands import KeyCreationCommand, expiry


class Command(KeyCreationCommand):
    help = "Create a customer key for a project and print it once."

    def perform(
        self, *, owner: str, name: str, permissions: list[str] | None, expires_in: int | None, **options: Any
    ) -> dict[str, Any]:
        made = services.create_project_key(
            project=find_project(owner),
            name=name,
            permissions=permissions,
            expires_at=expiry(expires_in),
            actor=Actor.command("create_project_key"),
        )
        return self.outcome_of(made)
