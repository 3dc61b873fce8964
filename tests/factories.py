"""Keys of an organization and of its projects, and who made them."""

from __future__ import annotations

from typing import Any

from organization import services
from organization.audit.trail import Actor
from organization.models import Organization, Project
from organization.services import NewKey

SOMEONE = Actor.command("tests")


def make_admin_key(organization: Organization, **options: Any) -> NewKey[Any]:
    return services.create_admin_key(organization=organization, name="ops", actor=SOMEONE, **options)


def make_project_key(project: Project, **options: Any) -> NewKey[Any]:
    return services.create_project_key(project=project, name="app", actor=SOMEONE, **options)
