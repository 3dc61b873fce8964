"""Operators manage organizations, projects and keys in the console."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from organization import services
from organization.authentication import customer_key_from
from organization.models import AdminKey, AuditEvent, Organization, Project, ProjectKey
from tests.factories import SOMEONE, make_admin_key, make_project_key

HOSTILE_NAME = '"><img src=x onerror=alert(1)>{{7*7}}'


@pytest.fixture
def operator(db: None) -> Any:
    return get_user_model().objects.create_superuser("ada", password="x")


@pytest.fixture
def console(operator: Any) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def listing(model: Any) -> str:
    return reverse(f"admin:organization_{model._meta.model_name}_changelist")


def secret_on(response: Any) -> str:
    found = re.search(r'<pre id="secret"[^>]*>([^<]+)</pre>', response.content.decode())
    assert found
    return found[1]


def act(console: Client, action: str, *rows: Any, confirmed: bool = True) -> Any:
    body = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    return console.post(
        listing(type(rows[0])), {**body, "confirmed": "yes"} if confirmed else body, follow=True
    )


@pytest.mark.parametrize("model", [Organization, Project, ProjectKey, AdminKey, AuditEvent])
def test_every_page_opens_for_any_number_of_rows_with_as_few_queries(
    console: Client, acme: Organization, project: Project, model: Any, django_assert_max_num_queries: Any
) -> None:
    for _ in range(5):
        make_project_key(project)
        make_admin_key(acme)

    with django_assert_max_num_queries(12):
        assert console.get(listing(model)).status_code == 200
    row = model.objects.first()
    assert (
        console.get(reverse(f"admin:organization_{model._meta.model_name}_change", args=[row.pk])).status_code
        == 200
    )
    adding = console.get(reverse(f"admin:organization_{model._meta.model_name}_add"))
    assert adding.status_code == (403 if model is AuditEvent else 200)


def test_an_operator_makes_an_organization_a_project_and_a_key_that_works(console: Client) -> None:
    console.post(reverse("admin:organization_organization_add"), {"name": "Acme"})
    acme = Organization.objects.get(name="Acme")
    console.post(reverse("admin:organization_project_add"), {"organization": acme.pk, "name": "Web"})
    project = Project.objects.get(name="Web")

    page = console.post(
        reverse("admin:organization_projectkey_add"),
        {"project": project.pk, "name": "app", "permissions": ["inference:write"], "expires_in_days": "30"},
    )

    key = ProjectKey.objects.get()
    assert customer_key_from([(b"x-api-key", secret_on(page).encode())]) == key
    assert key.permissions == ["inference:write"]
    assert key.expires_at is not None
    assert "no-store" in page.headers["Cache-Control"]
    assert secret_on(page) not in console.get(listing(ProjectKey)).content.decode()
    actors = set(AuditEvent.objects.values_list("actor_kind", "actor_label"))
    assert actors == {("staff", "ada")}


def test_an_admin_key_is_shown_once(console: Client, acme: Organization) -> None:
    page = console.post(
        reverse("admin:organization_adminkey_add"),
        {"organization": acme.pk, "name": "ops", "permissions": []},
    )

    assert secret_on(page).startswith("gwa_")
    assert AdminKey.objects.get().permissions == sorted(AdminKey.AVAILABLE_PERMISSIONS)


def test_an_action_says_what_will_happen_before_it_does(console: Client, project: Project) -> None:
    key = make_project_key(project).key

    page = act(console, "revoke", key, confirmed=False)

    assert "for ever" in page.content.decode()
    key.refresh_from_db()
    assert key.revoked_at is None


def test_keys_are_suspended_resumed_rotated_and_revoked(console: Client, project: Project) -> None:
    made = make_project_key(project)
    statuses = []
    for action in ("suspend", "resume", "revoke"):
        act(console, action, made.key)
        statuses.append(str(ProjectKey.objects.get().status))

    assert statuses == ["suspended", "active", "revoked"]
    refused = act(console, "resume", made.key)
    assert "revoked key cannot be resumed" in refused.content.decode()


def test_a_rotated_key_shows_its_new_value(console: Client, project: Project) -> None:
    made = make_project_key(project)

    value = secret_on(act(console, "rotate", made.key))

    assert value != made.value
    assert customer_key_from([(b"x-api-key", value.encode())]) == made.key


def test_two_keys_are_not_rotated_at_once(console: Client, project: Project) -> None:
    first, second = make_project_key(project), make_project_key(project)

    assert "Choose one" in act(console, "rotate", first.key, second.key).content.decode()


def test_a_project_is_archived_and_gets_no_more_keys(console: Client, project: Project) -> None:
    act(console, "archive", project)

    project.refresh_from_db()
    assert not project.is_active
    page = console.post(
        reverse("admin:organization_projectkey_add"), {"project": project.pk, "name": "app"}, follow=True
    )
    assert "archived" in page.content.decode()
    assert not ProjectKey.objects.exists()


def test_nothing_can_be_deleted_or_forged(console: Client, project: Project) -> None:
    key = make_project_key(project).key
    event = AuditEvent.objects.first()
    assert event is not None

    for row in (project, key, event):
        name = f"admin:organization_{row._meta.model_name}"
        assert console.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
        assert console.post(reverse(f"{name}_change", args=[row.pk]), {"name": "forged"}).status_code == 403


def test_a_reader_sees_and_cannot_act(project: Project) -> None:
    key = make_project_key(project).key
    reader = get_user_model().objects.create_user("reader", password="x", is_staff=True)
    reader.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(reader)

    assert client.get(listing(ProjectKey)).status_code == 200
    act(client, "revoke", key)
    key.refresh_from_db()
    assert key.revoked_at is None


def test_a_stranger_is_sent_to_the_login(db: None) -> None:
    response = Client().get(listing(ProjectKey))

    assert response.status_code == 302
    assert "/admin/login/" in response.headers["Location"]


def test_a_mutation_without_its_token_is_refused(operator: Any, project: Project) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)

    assert act(client, "archive", project).status_code == 403


def test_a_hostile_name_is_shown_as_text(console: Client, acme: Organization) -> None:
    project, _ = services.create_project(organization=acme, name=HOSTILE_NAME, actor=SOMEONE)

    for page in (console.get(listing(Project)), act(console, "archive", project, confirmed=False)):
        assert "<img src=x" not in page.content.decode()
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(..)", page.content.decode())
