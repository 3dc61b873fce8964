"""
The key that a playground works with: a customer key of the chosen project like any other, for one hour.

Values of keys are stored nowhere, so an existing key cannot be lent to the page. One of its own is made by
the same service as every other, to the person's name in the audit trail; the page alone has its value.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from gateway_site.models import PlaygroundKey
from organization import services
from organization.audit.trail import Actor
from organization.models import NAME_LENGTH, Project, ProjectKey
from organization.services import NewKey

PERMISSION = "inference.use_playground"
# Where the browser's own key is remembered, so that it can be ended: its id, never its value.
SESSION_ENTRY = "playground_key"
LIFETIME = timedelta(hours=1)
PERMISSIONS = ["inference:write"]


def open_key(*, person: Any, project: Project, previous_id: str | None) -> NewKey[ProjectKey]:
    """Make a key for this person in the project, and revoke the one that the same browser had."""
    with transaction.atomic():
        end_key(person=person, key_id=previous_id)
        PlaygroundKey.objects.filter(user=person, key__expires_at__lt=timezone.now()).delete()
        made = services.create_project_key(
            project=project,
            name=f"Playground of {person.get_username()}"[:NAME_LENGTH],
            permissions=PERMISSIONS,
            expires_at=timezone.now() + LIFETIME,
            actor=Actor.staff(person),
        )
        PlaygroundKey.objects.create(key=made.key, user=person)
        return made


def end_key(*, person: Any, key_id: str | None) -> None:
    """Revoke a key that `open_key` made. What it has under way goes on to its end."""
    keys = ProjectKey.objects.select_related("project__organization")
    key = keys.filter(pk=uuid.UUID(key_id)).first() if key_id else None
    if key is not None:
        services.revoke_key(key=key, actor=Actor.staff(person))


def end_keys_of(user: Any, *, actor: Actor) -> None:
    """Revoke every key that a person has from a playground, in whichever browser it is."""
    theirs = PlaygroundKey.objects.filter(user=user).values("key")
    keys = ProjectKey.objects.select_related("project__organization")
    for key in keys.filter(pk__in=theirs, revoked_at=None, expires_at__gt=timezone.now()):
        services.revoke_key(key=key, actor=actor)
