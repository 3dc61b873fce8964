"""Test clients that are logged in to the console, with all permissions or those that are named."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client


def owner() -> Client:
    return _signed_in(get_user_model().objects.create_superuser("ada", password="x"))


def person(*permissions: str) -> Client:
    """Staff with these permissions ("billing.view_account") and no other."""
    user = get_user_model().objects.create_user("someone", password="x", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return _signed_in(user)


def customer() -> Client:
    """Signed in, and not staff."""
    return _signed_in(get_user_model().objects.create_user("customer", password="x"))


def _signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client
