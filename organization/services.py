"""
What can be done to organizations, projects and keys. The API, the console and the commands all call
these services. Each is one transaction that also writes the audit trail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from gateway_site.api.errors import Conflict, InvalidRequest, ProjectArchived
from organization import keys
from organization.audit import trail
from organization.audit.trail import Actor
from organization.models import NAME_LENGTH, AdminKey, ApiKey, KeyStatus, Organization, Project, ProjectKey

AnyKey = TypeVar("AnyKey", bound=ApiKey)


@dataclass(frozen=True, slots=True)
class NewKey(Generic[AnyKey]):
    """A key and, this once, its value."""

    key: AnyKey
    value: str

    def __repr__(self) -> str:
        return f"NewKey({self.key})"  # never the value, which would end up in a traceback


def create_organization(*, name: str, actor: Actor) -> tuple[Organization, bool]:
    """Create the organization of this name, or find it; and whether it is new."""
    _require_name(name)
    with transaction.atomic():
        organization, is_new = Organization.objects.get_or_create(name=name)
        if is_new:
            trail.record(actor, "organization.create", organization, organization=organization)
    return organization, is_new


def create_project(*, organization: Organization, name: str, actor: Actor) -> tuple[Project, bool]:
    """Create the active project of this name, or find it; and whether it is new."""
    _require_name(name)
    with transaction.atomic():
        project, is_new = Project.objects.get_or_create(
            organization=organization, name=name, archived_at=None
        )
        if is_new:
            trail.record(actor, "project.create", project, organization=organization, details={"name": name})
    return project, is_new


def create_project_key(
    *,
    project: Project,
    name: str,
    actor: Actor,
    permissions: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> NewKey[ProjectKey]:
    """Create a customer key for an active project."""
    _require_name(name)
    with transaction.atomic():
        # Locked, so that an archive either comes first and is seen here, or waits for this key.
        if not Project.objects.select_for_update().get(pk=project.pk).is_active:
            raise ProjectArchived()
        value = keys.new_value("customer")
        key = ProjectKey(project=project, **_key_fields(ProjectKey, name, value, permissions, expires_at))
        key.save(force_insert=True)
        trail.record(
            actor, "project_key.create", key, organization=project.organization, details=_public(key)
        )
    return NewKey(key, value)


def create_admin_key(
    *,
    organization: Organization,
    name: str,
    actor: Actor,
    permissions: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> NewKey[AdminKey]:
    """Create an Admin API key for the organization."""
    _require_name(name)
    with transaction.atomic():
        value = keys.new_value("admin")
        key = AdminKey(
            organization=organization, **_key_fields(AdminKey, name, value, permissions, expires_at)
        )
        key.save(force_insert=True)
        trail.record(actor, "admin_key.create", key, organization=organization, details=_public(key))
    return NewKey(key, value)


def is_current_project_key(key_id: str, value: str) -> bool:
    """Whether `value` still is what this project key is used with."""
    key = ProjectKey.objects.filter(pk=key_id).first()
    if key is None or key.status is not KeyStatus.ACTIVE:
        return False
    return key.digest in keys.digests_of(value, settings.GATEWAY_KEY_PEPPERS)


def rotate_key(*, key: AnyKey, actor: Actor, seen_value: str = "") -> NewKey[AnyKey]:
    """
    Give the same key a new value. The old value stops working at once.

    `seen_value` is the redacted value that the caller means to end: who rotates from an old page would
    otherwise end the one that a colleague was given a moment ago.
    """
    with transaction.atomic():
        value = keys.new_value("customer" if isinstance(key, ProjectKey) else "admin")
        changes = {"digest": _digest(value), "redacted_value": keys.redacted(value)}
        unrevoked = type(key)._default_manager.filter(pk=key.pk, revoked_at=None)
        meant = unrevoked.filter(redacted_value=seen_value) if seen_value else unrevoked
        if not meant.update(**changes):
            if unrevoked.exists():
                raise Conflict("The key was rotated since you looked at it. Look again before you do.")
            raise Conflict("A revoked key cannot be rotated; create a new one.")
        key.refresh_from_db()
        _record_key_change(key, "rotate", actor)
    return NewKey(key, value)


def archive_project(*, project: Project, actor: Actor) -> Project:
    """End a project: its keys admit no more inference. Done twice, the second changes nothing."""
    with transaction.atomic():
        changed = Project.objects.filter(pk=project.pk, archived_at=None).update(archived_at=timezone.now())
        project.refresh_from_db()
        if changed:
            trail.record(actor, "project.archive", project, organization=project.organization)
    return project


def revoke_key(*, key: AnyKey, actor: Actor) -> AnyKey:
    """End a key for ever. Done twice, the second changes nothing."""
    return _change_status(key, "revoke", {"revoked_at": None}, {"revoked_at": timezone.now()}, actor)


def suspend_key(*, key: AnyKey, actor: Actor) -> AnyKey:
    """Stop a key until it is resumed."""
    _refuse_revoked(key, "suspended")
    still_open = {"suspended_at": None, "revoked_at": None}
    return _change_status(key, "suspend", still_open, {"suspended_at": timezone.now()}, actor)


def resume_key(*, key: AnyKey, actor: Actor) -> AnyKey:
    """Let a suspended key work again."""
    _refuse_revoked(key, "resumed")
    suspended = {"suspended_at__isnull": False, "revoked_at": None}
    return _change_status(key, "resume", suspended, {"suspended_at": None}, actor)


def _change_status(
    key: AnyKey, verb: str, condition: Mapping[str, object], changes: Mapping[str, object], actor: Actor
) -> AnyKey:
    with transaction.atomic():
        changed = type(key)._default_manager.filter(pk=key.pk, **condition).update(**changes)
        key.refresh_from_db()
        if changed:
            _record_key_change(key, verb, actor)
    return key


def _record_key_change(key: ApiKey, verb: str, actor: Actor) -> None:
    kind = "project_key" if isinstance(key, ProjectKey) else "admin_key"
    organization = key.organization  # type: ignore[attr-defined]
    trail.record(actor, f"{kind}.{verb}", key, organization=organization, details=_public(key))


def _refuse_revoked(key: ApiKey, participle: str) -> None:
    if key.status is KeyStatus.REVOKED:
        raise Conflict(f"A revoked key cannot be {participle}.")


def _key_fields(
    model: type[ProjectKey] | type[AdminKey],
    name: str,
    value: str,
    permissions: Sequence[str] | None,
    expires_at: datetime | None,
) -> dict[str, object]:
    # Unspecified: key-permissions. A key gets every permission of its kind unless its maker, an
    # operator, names fewer; a request body cannot name any.
    chosen = sorted(set(permissions)) if permissions is not None else sorted(model.AVAILABLE_PERMISSIONS)
    unknown = [permission for permission in chosen if permission not in model.AVAILABLE_PERMISSIONS]
    if unknown:
        available = ", ".join(model.AVAILABLE_PERMISSIONS)
        raise InvalidRequest(f"There is no permission {unknown[0]!r} for this kind of key, only {available}.")
    return {
        "name": name,
        "digest": _digest(value),
        "redacted_value": keys.redacted(value),
        "permissions": chosen,
        "expires_at": expires_at,
    }


def _digest(value: str) -> str:
    return keys.digest_of(value, settings.GATEWAY_KEY_PEPPERS[0])


def _public(key: ApiKey) -> dict[str, object]:
    return {"name": key.name, "redacted_value": key.redacted_value, "permissions": key.permissions}


def _require_name(name: str) -> None:
    # Unspecified: key-name-length. What the column holds, and not blank.
    if not name.strip() or len(name) > NAME_LENGTH:
        raise InvalidRequest(f"A name has 1 to {NAME_LENGTH} characters.", param="name")
