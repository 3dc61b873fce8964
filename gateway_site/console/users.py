"""
What can be done to users of the console: create, change role, reset password, deactivate, reactivate.

The pages and the commands both call these services. Nobody can give more rights than they have, nor change
anyone who has more: else whoever may reset passwords could be everyone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth import SESSION_KEY, get_user_model
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from gateway_site.api.errors import Conflict, InvalidRequest, PermissionDenied
from gateway_site.console import roles
from gateway_site.console.playground import keys
from organization.audit import trail
from organization.audit.trail import Actor

SUPERUSER = "Superuser"
PASSWORD_BYTES = 15


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A user and, this once, their password; None where the user was there already."""

    user: User
    password: str | None = None

    def __repr__(self) -> str:
        return f"NewPassword({self.user})"  # never the password, which would end up in a traceback


def role_of(user: Any) -> str:
    """The role of a person; empty where they have none of ours."""
    if user.is_superuser:
        return SUPERUSER
    names = {group.name for group in user.groups.all()}
    return next((role for role in roles.ROLES if role in names), "")


def may_manage(manager: Any, user: Any) -> bool:
    """Whether one person may change another: not themselves, and nobody who may do more."""
    if manager.pk == user.pk:
        return False
    if manager.is_superuser:
        return True
    return not user.is_superuser and user.get_all_permissions() <= manager.get_all_permissions()


def roles_offered_by(manager: Any) -> list[str]:
    """The roles that this person can give."""
    return [*roles.grantable_by(manager), *([SUPERUSER] if manager.is_superuser else [])]


def create_user(*, username: str, role: str, actor: Actor, manager: Any = None) -> NewPassword:
    """
    Create a user with a role and a generated password. One who is there already is left as they are.

    `manager` is who does it, where that is a person of the console.
    """
    _require_role(role, manager)
    users = get_user_model()
    username = users.normalize_username(username.strip())
    if not 1 <= len(username) <= 150 or not username.isprintable():
        raise InvalidRequest("A user's name has 1 to 150 characters.", param="username")
    with transaction.atomic():
        existing = users.objects.filter(username=username).first()
        if existing is not None:
            return NewPassword(existing)
        password = _new_password()
        user = users.objects.create_user(username, password=password, is_staff=True)
        _assign_role(user, role)
        trail.record(actor, "user.create", user, organization=None, details=_audit_details(user, role))
    return NewPassword(user, password)


def change_role(*, user: User, role: str, actor: Actor, manager: Any) -> User:
    """Give a person another role."""
    with _locked_for(user, manager) as current_manager:
        _require_role(role, current_manager)
        before = role_of(user)
        if before != role:
            _assign_role(user, role)
            details = {**_audit_details(user, role), "before": {"role": before}}
            trail.record(actor, "user.change_role", user, organization=None, details=details)
            if not User.objects.get(pk=user.pk).has_perm(keys.PERMISSION):
                keys.end_keys_of(user, actor=actor)
    return user


def deactivate_user(*, user: User, actor: Actor, manager: Any) -> User:
    """Deactivate a user. Their sessions and their playgrounds' keys end at once, and do not come back."""
    return _set_active(user, False, actor, manager)


def reactivate_user(*, user: User, actor: Actor, manager: Any) -> User:
    """Reactivate a user, with the password they had."""
    return _set_active(user, True, actor, manager)


def reset_password(*, user: User, actor: Actor, manager: Any) -> NewPassword:
    """Give a person a new password. The old one and every session end at once."""
    password = _new_password()
    with _locked_for(user, manager):
        user.set_password(password)
        user.save(update_fields=["password"])
        trail.record(actor, "user.reset_password", user, organization=None, details=_audit_details(user))
        keys.end_keys_of(user, actor=actor)
    return NewPassword(user, password)


def _set_active(user: User, is_active: bool, actor: Actor, manager: Any) -> User:
    verb = "reactivate" if is_active else "deactivate"
    with _locked_for(user, manager):
        changed = get_user_model().objects.filter(pk=user.pk, is_active=not is_active)
        if changed.update(is_active=is_active):
            trail.record(actor, f"user.{verb}", user, organization=None, details=_audit_details(user))
        if not is_active:
            keys.end_keys_of(user, actor=actor)
            _end_sessions(user)
    user.refresh_from_db()
    return user


def _end_sessions(user: User) -> None:
    """
    Log a person out everywhere.

    Whom a session is of is inside it: all that are alive are read, a few for each person of the console.
    """
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            session.delete()


def _assign_role(user: User, role: str) -> None:
    if not Group.objects.filter(name=role).exists() and role != SUPERUSER:
        roles.apply(apps)
    user.groups.remove(*Group.objects.filter(name__in=roles.ROLES))
    user.is_superuser = role == SUPERUSER
    if role != SUPERUSER:
        user.groups.add(Group.objects.get(name=role))
    user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])


def _require_role(role: str, manager: Any) -> None:
    if role not in (*roles.ROLES, SUPERUSER):
        raise InvalidRequest(f"The role must be one of {', '.join(roles.ROLES)}.", param="role")
    if manager is not None and role not in roles_offered_by(manager):
        raise PermissionDenied(f"You cannot give the role {role}.")


@contextmanager
def _locked_for(user: User, manager: Any) -> Iterator[User]:
    """
    A transaction in which one person changes another, as both are now.

    Both rows are locked: two owners who take the role from each other at the same moment must not both do it.
    """
    if manager.pk == user.pk:
        raise Conflict("Nobody changes this about themselves; ask another person.")
    with transaction.atomic():
        rows = User.objects.select_for_update().filter(pk__in=[manager.pk, user.pk]).order_by("pk")
        both = {each.pk: each for each in rows}
        current, changed = both.get(manager.pk), both.get(user.pk)
        if current is None or changed is None or not may_manage(current, changed):
            raise PermissionDenied("This person may do more than you.")
        yield current


def _audit_details(user: User, role: str = "") -> dict[str, str]:
    return {"username": user.get_username(), **({"role": role} if role else {})}


def _new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)
