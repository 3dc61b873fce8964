"""The organization that `quickstart` makes, once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.db import transaction

from organization import services
from organization.audit import Actor
from organization.models import Organization

ORGANIZATION, PROJECT, OPERATOR = "Demo", "Playground", "admin"


@dataclass(frozen=True, slots=True)
class Demo:
    """What was made, with the secrets that are shown once; None where it was there already."""

    organization: Organization
    customer_key: str | None = None
    admin_key: str | None = None
    password: str | None = None


def prepare_demo() -> Demo:
    """Make the demo organization, its keys and an operator. What exists is left as it is."""
    actor = Actor.command("quickstart")
    with transaction.atomic():
        password = _create_operator()
        existing = Organization.objects.filter(name=ORGANIZATION).first()
        if existing is not None:
            return Demo(existing, password=password)
        organization, _ = services.create_organization(name=ORGANIZATION, actor=actor)
        project, _ = services.create_project(organization=organization, name=PROJECT, actor=actor)
        customer = services.create_project_key(project=project, name="quickstart", actor=actor)
        admin = services.create_admin_key(organization=organization, name="quickstart", actor=actor)
    return Demo(organization, customer.value, admin.value, password)


def _create_operator() -> str | None:
    users = get_user_model()._default_manager
    if users.exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(OPERATOR, password=password)
    return password
