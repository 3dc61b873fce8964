"""People on call and their scripts use `manage.py`."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.core.management import CommandError

from organization.authentication import admin_key_from, customer_key_from
from organization.models import AdminKey, AuditEvent, Organization, Project, ProjectKey
from organization.permissions import ADMIN_PERMISSIONS
from tests.factories import make_admin_key, make_project_key
from tests.harness.commands import run, say


def test_from_nothing_to_two_keys_that_work(db: None) -> None:
    organization = run("create_organization", "Acme")
    project = run("create_project", "Acme", "Web")
    customer = run("create_project_key", project["id"], "app")
    admin = run("create_admin_key", organization["id"], "ops")

    found = customer_key_from([(b"x-api-key", customer["value"].encode())])
    assert str(found.pk) == customer["id"]
    assert str(found.project_id) == project["id"]
    assert str(admin_key_from([(b"authorization", b"Bearer " + admin["value"].encode())]).pk) == admin["id"]
    assert (customer["name"], admin["name"]) == ("app", "ops")
    assert AuditEvent.objects.filter(actor_kind="command").count() == 4


def test_creating_by_name_again_finds_the_first(db: None) -> None:
    first = [run("create_organization", "Acme"), run("create_project", "Acme", "Web")]
    second = [run("create_organization", "Acme"), run("create_project", "Acme", "Web")]

    assert [each["id"] for each in first] == [each["id"] for each in second]
    assert [each["created"] for each in first + second] == [True, True, False, False]


def test_a_project_may_be_named_like_an_archived_one(project: Project) -> None:
    run("archive_project", str(project.pk))

    assert run("create_project", "Acme", "Web")["id"] != str(project.pk)


def test_a_key_may_be_given_fewer_permissions_and_an_end(acme: Organization, project: Project) -> None:
    made = run("create_project_key", "Web", "app", "--permission", "models:read", "--expires-in", "60")
    admin = run(
        "create_admin_key", "Acme", "ops", "--permission", "billing:read", "--permission", "policies:read"
    )

    key = ProjectKey.objects.get(pk=made["id"])
    assert key.permissions == ["models:read"]
    assert key.expires_at is not None
    assert int(key.expires_at.timestamp()) == made["expires_at"]
    assert AdminKey.objects.get(pk=admin["id"]).permissions == ["billing:read", "policies:read"]


def test_without_permissions_named_a_key_gets_all_of_its_kind(acme: Organization) -> None:
    assert run("create_admin_key", "Acme", "ops")["permissions"] == sorted(ADMIN_PERMISSIONS)


@pytest.mark.parametrize("make", [make_project_key, make_admin_key])
def test_a_key_is_suspended_resumed_and_revoked_by_its_id(
    acme: Organization, project: Project, make: Any
) -> None:
    identifier = str(make(project if make is make_project_key else acme).key.pk)

    steps = ["suspend_key", "suspend_key", "resume_key", "resume_key", "revoke_key", "revoke_key"]
    statuses = [run(step, identifier)["status"] for step in steps]

    assert statuses == ["suspended", "suspended", "active", "active", "revoked", "revoked"]
    with pytest.raises(CommandError, match="revoked key cannot be resumed"):
        run("resume_key", identifier)
    verbs = AuditEvent.objects.filter(target_id=identifier).order_by("id").values_list("action", flat=True)
    assert [verb.split(".")[1] for verb in verbs] == ["create", "suspend", "resume", "revoke"]


def test_keys_are_listed_without_their_values(acme: Organization, project: Project) -> None:
    made = [make_project_key(project), make_admin_key(acme)]

    listed = run("list_keys", "Acme")["keys"]

    assert {key["id"] for key in listed} == {str(each.key.pk) for each in made}
    assert not any(each.value in json.dumps(listed) for each in made)
    assert made[0].key.redacted_value in say("list_keys", "Acme")


def test_a_command_answers_people_in_sentences(db: None) -> None:
    assert "Created organization Acme" in say("create_organization", "Acme")
    assert "already" in say("create_organization", "Acme")
    say("create_project", "Acme", "Web")
    assert "only time" in say("create_project_key", "Web", "app")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["create_project", "Nobody", "Web"], "no organization"),
        (["create_admin_key", str(uuid.uuid4()), "ops"], "no organization"),
        (["create_project_key", "Nowhere", "app"], "no project"),
        (["revoke_key", "not-an-id"], "no key"),
        (["suspend_key", str(uuid.uuid4())], "no key"),
        (["create_organization", "  "], "name has 1 to 200"),
        (["create_organization", "x" * 201], "name has 1 to 200"),
        (["create_admin_key", "Acme", "ops", "--permission", "inference:write"], "no permission"),
        (["create_project_key", "Web", "app", "--expires-in", "0"], "--expires-in"),
    ],
)
def test_a_mistake_is_one_clear_line(project: Project, words: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as caught:
        run(*words)

    assert "\n" not in str(caught.value)


def test_a_project_name_of_two_organizations_needs_an_id(project: Project, rival_project: Project) -> None:
    with pytest.raises(CommandError, match="give its id"):
        run("create_project_key", "Web", "app")
