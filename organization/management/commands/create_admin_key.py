from __future__ import annotations

from typing import Any

from organization import services
from organization.audit.trail import Actor
from organization.lookups import find_organization
from organization.management.key_commands import KeyCreationCommand, expiry


class Command(KeyCreationCommand):
    help = "Create an Admin API key for an organization and print it once."

    def perform(
        self, *, owner: str, name: str, permissions: list[str] | None, expires_in: int | None, **options: Any
    ) -> dict[str, Any]:
        made = services.create_admin_key(
            organization=find_organization(owner),
            name=name,
            permissions=permissions,
            expires_at=expiry(expires_in),
            actor=Actor.command("create_admin_key"),
        )
        return self.outcome_of(made)
