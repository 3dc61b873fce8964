"""Owners manage the people of the console, and nobody makes themselves mightier."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from gateway_site.api.errors import PermissionDenied
from gateway_site.console import users
from gateway_site.console.roles import BILLING, OPERATOR, OWNER, READER
from organization.audit.trail import Actor
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.gateway_site.console.factories import action_url, list_url, page, signed_in, someone

pytestmark = pytest.mark.django_db
YES = {"confirmed": "yes", "asked": "yes"}


def secret_on(answer: Any) -> str:
    found = re.search(r'<pre id="secret"[^>]*>([^<]+)</pre>', answer.content.decode())
    assert found
    return found[1]


def role(user: User) -> str:
    return users.role_of(User.objects.get(pk=user.pk))


@pytest.fixture
def owner() -> User:
    return someone(OWNER, "owen")


@pytest.fixture
def root() -> User:
    return get_user_model().objects.create_superuser("root", password="x")


def test_a_new_user_logs_in_with_the_password_shown_once(owner: User) -> None:
    """An owner adds someone, who logs in with the password that was shown once."""
    client = signed_in(owner)

    made = client.post(list_url(User, "add"), {"username": "oleg", "role": OPERATOR})

    oleg = User.objects.get(username="oleg")
    assert (role(oleg), oleg.is_staff, oleg.is_superuser) == (OPERATOR, True, False)
    assert "no-store" in made.headers["Cache-Control"]
    answer = Client().post("/admin/login/", {"username": "oleg", "password": secret_on(made)})
    assert answer.status_code == 302
    event = AuditEvent.objects.get(action="user.create", target_id=str(oleg.pk))
    assert (event.actor_label, event.details["role"]) == ("owen", OPERATOR)
    assert secret_on(made) not in str(event.details)


def test_a_role_is_changed_after_a_look_at_it(owner: User) -> None:
    client, rita = signed_in(owner), someone(READER)

    asked = client.post(action_url(rita, "change_role"), {"role": BILLING, "asked": "yes"})
    assert role(rita) == READER
    assert "New role" in asked.content.decode()
    client.post(action_url(rita, "change_role"), {"role": BILLING, **YES})

    assert role(rita) == BILLING
    told = AuditEvent.objects.get(action="user.change_role").details
    assert (told["before"]["role"], told["role"]) == (READER, BILLING)


def test_who_is_deactivated_is_out_at_once_and_comes_back(owner: User) -> None:
    client, rita = signed_in(owner), someone(READER)
    session = signed_in(rita)
    assert session.get("/admin/password_change/").status_code == 200

    client.post(action_url(rita, "deactivate"), YES)
    assert session.get("/admin/password_change/").status_code == 302
    client.post(action_url(rita, "reactivate"), YES)

    assert User.objects.get(pk=rita.pk).is_active
    assert signed_in(rita).get("/admin/password_change/").status_code == 200


def test_a_reset_password_is_shown_once_and_ends_sessions(owner: User) -> None:
    client, rita = signed_in(owner), someone(READER)
    session = signed_in(rita)

    made = client.post(action_url(rita, "reset_password"), YES)

    answer = Client().post("/admin/login/", {"username": rita.username, "password": secret_on(made)})
    assert answer.status_code == 302
    assert session.get("/admin/password_change/").status_code == 302
    assert secret_on(made) not in client.get(page(rita)).content.decode()


def test_who_changes_their_own_password_is_in_the_trail(owner: User) -> None:
    owner.set_password("an old one that is long")
    owner.save()
    client, before = signed_in(owner), AuditEvent.objects.count()
    new = {"new_password1": "a new one that is long", "new_password2": "a new one that is long"}

    assert client.get("/admin/password_change/").status_code == 200
    assert client.post("/admin/password_change/", {"old_password": "wrong", **new}).status_code == 200
    assert AuditEvent.objects.count() == before
    client.post("/admin/password_change/", {"old_password": "an old one that is long", **new})

    event = AuditEvent.objects.latest("id")
    assert (event.action, event.actor_label) == ("user.change_password", "owen")
    assert "one that is long" not in str(event.details)
    assert User.objects.get(pk=owner.pk).check_password("a new one that is long")
    assert Client().post("/admin/password_change/", {}).headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("action", ["change_role", "reset_password", "deactivate"])
def test_an_owner_cannot_touch_a_superuser_nor_themselves(owner: User, root: User, action: str) -> None:
    client = signed_in(owner)
    before = list(User.objects.order_by("pk").values())

    refused = client.post(action_url(root, action), {"role": READER, **YES})
    told = client.post(action_url(owner, action), {"role": READER, **YES}, follow=True)

    assert refused.status_code == 403
    assert "about themselves" in told.content.decode()
    assert list(User.objects.order_by("pk").values()) == before
    assert action_url(root, action) not in client.get(page(root)).content.decode()


def test_only_a_superuser_makes_superusers(owner: User, root: User) -> None:
    rita = someone(READER)
    refused = signed_in(owner).post(action_url(rita, "change_role"), {"role": users.SUPERUSER, **YES})
    assert "valid choice" in refused.content.decode()
    assert not User.objects.get(pk=rita.pk).is_superuser
    assert users.SUPERUSER not in signed_in(owner).get(list_url(User, "add")).content.decode()

    signed_in(root).post(action_url(rita, "change_role"), {"role": users.SUPERUSER, **YES})

    assert User.objects.get(pk=rita.pk).is_superuser


def test_nobody_gives_more_than_they_have(owner: User) -> None:
    """Someone who may change people, and little else, cannot become an owner by way of another."""
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(
        Permission.objects.filter(codename__in=["view_user", "change_user", "add_user"])
    )
    clerk = User.objects.get(pk=clerk.pk)
    rita, client = someone(READER), signed_in(clerk)

    client.post(action_url(rita, "change_role"), {"role": OWNER, **YES})
    assert client.post(action_url(owner, "reset_password"), YES).status_code == 403
    client.post(list_url(User, "add"), {"username": "puppet", "role": OWNER})

    assert role(rita) == READER
    assert not User.objects.filter(username="puppet").exists()
    with pytest.raises(PermissionDenied):
        users.create_user(username="puppet", role=OWNER, actor=Actor.staff(clerk), manager=clerk)


def test_no_form_can_be_forged(owner: User) -> None:
    rita, client = someone(READER), signed_in(owner)
    forged = {"username": "x", "is_superuser": "on", "groups": "1", "password": "x"}

    assert client.post(page(rita), forged).status_code == 403
    client.post(list_url(User, "add"), {**forged, "username": "eve", "role": READER})

    assert not User.objects.get(username="eve").is_superuser
    assert client.get(f"/admin/auth/user/{rita.pk}/password/").status_code != 200
    group = Group.objects.get(name=READER)
    assert client.post(page(group), {"name": "x", "permissions": ["1"]}).status_code == 403


def test_others_do_not_see_people(owner: User) -> None:
    for other in (OPERATOR, BILLING, READER):
        client = signed_in(someone(other))
        assert client.get(list_url(User)).status_code == 403
        assert client.post(action_url(owner, "deactivate"), YES).status_code == 403
    assert User.objects.get(pk=owner.pk).is_active


def test_a_list_of_many_takes_as_few_queries(owner: User, django_assert_max_num_queries: Any) -> None:
    for _ in range(30):
        someone(READER)

    client = signed_in(owner)
    with django_assert_max_num_queries(10):
        client.get(list_url(User))


# --- the command --------------------------------------------------------------------------------------


def command(*words: str) -> str:
    printed = io.StringIO()
    call_command("create_console_user", *words, stdout=printed)
    return printed.getvalue()


def test_a_command_makes_the_first_person_and_is_safe_to_repeat() -> None:
    made = json.loads(command("ada", "--role", "owner", "--json"))
    again = json.loads(command("ada", "--role", "read-only", "--json"))

    assert (made["role"], made["created"], again["created"], again["password"]) == (OWNER, True, False, None)
    assert role(User.objects.get(username="ada")) == OWNER
    answer = Client().post("/admin/login/", {"username": "ada", "password": made["password"]})
    assert answer.status_code == 302
    assert "exists already (Owner)" in command("ada", "--role", "owner")


def test_a_command_that_cannot_be_is_explained() -> None:
    with pytest.raises(CommandError, match="150 characters"):
        command(" ", "--role", "owner")
    with pytest.raises(CommandError, match="invalid choice"):
        command("ada", "--role", "king")


def test_a_role_whose_group_is_gone_is_made_again() -> None:
    Group.objects.all().delete()

    made = users.create_user(username="ada", role=BILLING, actor=SOMEONE).user

    assert made.has_perm("billing.add_creditgrant")
    assert not made.has_perm("organization.change_project")


@pytest.mark.parametrize("act", ["change_role", "deactivate_user", "reset_password"])
def test_an_owner_who_was_just_demoted_does_nothing_any_more(owner: User, act: str) -> None:
    """Two owners take the role from each other: the second is no owner by then."""
    other = someone(OWNER, "olga")
    assert users.may_manage(owner, other)  # as the page found it
    users.change_role(user=owner, role=READER, actor=Actor.staff(other), manager=other)
    given = {"role": READER} if act == "change_role" else {}

    with pytest.raises(PermissionDenied):
        getattr(users, act)(user=other, actor=Actor.staff(owner), manager=owner, **given)

    other.refresh_from_db()
    assert (role(other), other.is_active) == (OWNER, True)
