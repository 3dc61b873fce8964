"""The audit trail, who did what: services write it in the transaction of the change itself."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from django.db import models, transaction

from gateway_site.api import request_id
from organization.audit import chain
from organization.models import AdminKey, AuditEvent, Organization


@dataclass(frozen=True, slots=True)
class Actor:
    """Someone who can change things: an admin key, a person in the console, a command, the system."""

    kind: AuditEvent.ActorKind
    id: str
    label: str

    @classmethod
    def admin_key(cls, key: AdminKey) -> Actor:
        return cls(AuditEvent.ActorKind.ADMIN_KEY, str(key.pk), f"{key.name} ({key.redacted_value})")

    @classmethod
    def staff(cls, user: Any) -> Actor:
        return cls(AuditEvent.ActorKind.STAFF, str(user.pk), user.get_username())

    @classmethod
    def command(cls, name: str) -> Actor:
        """`manage.py <name>`, by whoever is logged in to the machine."""
        try:
            person = getpass.getuser()
        except (KeyError, OSError):  # a container may run as a number with no name
            person = "unknown"
        return cls(AuditEvent.ActorKind.COMMAND, person, f"manage.py {name}")

    @classmethod
    def system(cls) -> Actor:
        return cls(AuditEvent.ActorKind.SYSTEM, "", "scheduled task")


def record(
    actor: Actor,
    action: str,
    target: models.Model,
    *,
    organization: Organization | None,
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Append one event. `details` must hold no secret: it is shown in the console."""
    event = AuditEvent(
        organization=organization,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_label=actor.label[:250],
        action=action,
        target_kind=target._meta.model_name or "",
        target_id=str(target.pk),
        details=details or {},
        request_id=request_id.current(),
    )
    event.seal = chain.seal_of(event)
    event.save(force_insert=True)

    def link() -> None:
        chain.link_event(event.pk)

    # Robust: the change is committed, and a link that could not be made now is made with the next.
    transaction.on_commit(link, robust=True)
    return event
