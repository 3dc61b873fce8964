"""An administrator makes a key for a project, once, however often the request is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from organization import services
from organization.authentication import customer_key_from
from organization.models import AuditEvent, IdempotencyRecord, Organization, Project, ProjectKey, SecretDay
from organization.tasks import erase_old_secrets, prune_idempotency
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.error_checks import assert_error

KEY = "create-0001"


def create(
    api: ApiClient, project: Project, body: object = None, key: str | None = KEY, **headers: str
) -> Answer:
    sent = {"Idempotency-Key": key, **headers} if key is not None else headers
    target = f"/v1/organization/projects/{project.pk}/api_keys"
    return api.post(target, {"name": "app"} if body is None else body, headers=sent)


def age_record(age: timedelta) -> None:
    IdempotencyRecord.objects.update(created_at=F("created_at") - age)


def test_a_created_project_key_is_returned_with_its_value(api: ApiClient, project: Project) -> None:
    answer = create(api, project)

    assert answer.status == 200
    made = ProjectKey.objects.get()
    value = answer.json["value"]
    assert answer.json == {
        "id": str(made.pk),
        "object": "organization.project.api_key",
        "name": "app",
        "redacted_value": value[:8] + "...",
        "value": value,
        "created_at": int(made.created_at.timestamp()),
        "last_used_at": None,
        "expires_at": None,
        "owner": {"id": str(project.pk), "type": "project", "name": "Web"},
        "status": "active",
        "permissions": ["inference:write", "models:read"],
    }
    assert customer_key_from([(b"authorization", f"Bearer {value}".encode())]) == made


def test_the_trail_says_who_did_it_and_in_which_request(api: ApiClient, project: Project) -> None:
    answer = create(api, project)

    event = AuditEvent.objects.get(action="project_key.create")
    assert event.actor_kind == "admin_key"
    assert event.request_id == answer.headers["x-request-id"]
    assert event.target_id == answer.json["id"]
    assert answer.json["value"] not in str(event.details)


def test_an_identical_request_is_answered_with_the_same_key(api: ApiClient, project: Project) -> None:
    first = create(api, project)
    second = create(api, project)
    reordered = create(api, project, b' { "name" : "\\u0061pp" } ')

    assert first.body == second.body == reordered.body
    assert ProjectKey.objects.count() == 1


def test_another_body_under_the_same_idempotency_key_conflicts(api: ApiClient, project: Project) -> None:
    first = create(api, project)

    refused = create(api, project, {"name": "other"})

    assert_error(refused, 409, "idempotency_mismatch", param="Idempotency-Key")
    assert refused.headers["x-should-retry"] == "false"
    assert create(api, project).body == first.body
    assert ProjectKey.objects.count() == 1


def test_another_project_under_the_same_idempotency_key_conflicts(
    api: ApiClient, acme: Organization, project: Project
) -> None:
    create(api, project)
    other, _ = services.create_project(organization=acme, name="Mobile", actor=SOMEONE)

    assert_error(create(api, other), 409, "idempotency_mismatch")


def test_another_admin_key_never_gets_the_value(api: ApiClient, acme: Organization, project: Project) -> None:
    create(api, project)
    colleague = ApiClient(make_admin_key(acme).value)

    assert_error(create(colleague, project), 409, "idempotency_mismatch")


def test_another_organization_may_use_the_same_idempotency_key(
    api: ApiClient, rival_api: ApiClient, project: Project, rival_project: Project
) -> None:
    ours = create(api, project)
    theirs = create(rival_api, rival_project)

    assert (ours.status, theirs.status) == (200, 200)
    assert ours.json["id"] != theirs.json["id"]


@pytest.mark.parametrize(("age_seconds", "has_value"), [(24 * 3600 - 5, True), (24 * 3600 + 5, False)])
def test_the_value_is_repeated_for_a_day(
    api: ApiClient, project: Project, age_seconds: int, has_value: bool
) -> None:
    first = create(api, project)
    age_record(timedelta(seconds=age_seconds))

    replay = create(api, project)

    assert replay.status == 200
    assert ("value" in replay.json) is has_value
    assert replay.json["id"] == first.json["id"]
    assert ProjectKey.objects.count() == 1


def test_after_a_day_the_secret_and_its_key_are_gone(api: ApiClient, project: Project) -> None:
    create(api, project)
    assert IdempotencyRecord.objects.exclude(secret_ciphertext=None).exists()
    age_record(timedelta(hours=25))
    SecretDay.objects.update(day=timezone.now().date() - timedelta(days=3))

    erase_old_secrets()

    assert not IdempotencyRecord.objects.exclude(secret_ciphertext=None).exists()
    assert not SecretDay.objects.exists()
    assert "value" not in create(api, project).json


def test_a_young_secret_is_not_erased(api: ApiClient, project: Project) -> None:
    first = create(api, project)

    erase_old_secrets()
    prune_idempotency()

    assert create(api, project).body == first.body


def test_after_a_month_the_idempotency_key_is_forgotten(api: ApiClient, project: Project) -> None:
    first = create(api, project)
    age_record(timedelta(days=31))

    prune_idempotency()

    assert create(api, project).json["id"] != first.json["id"]


def test_a_ciphertext_moved_to_another_record_does_not_open(api: ApiClient, project: Project) -> None:
    create(api, project)
    create(api, project, {"name": "second"}, key="create-0002")
    one, two = IdempotencyRecord.objects.order_by("key")
    IdempotencyRecord.objects.filter(pk=two.pk).update(secret_ciphertext=one.secret_ciphertext)

    assert_error(create(api, project, {"name": "second"}, key="create-0002"), 503)


def test_a_replay_after_revocation_or_rotation_carries_no_value(api: ApiClient, project: Project) -> None:
    create(api, project)
    create(api, project, {"name": "second"}, key="create-0002")
    revoked, rotated = ProjectKey.objects.order_by("created_at")
    services.revoke_key(key=revoked, actor=SOMEONE)
    services.rotate_key(key=rotated, actor=SOMEONE)

    assert "value" not in create(api, project).json
    assert "value" not in create(api, project, {"name": "second"}, key="create-0002").json


def test_the_database_holds_no_value(api: ApiClient, project: Project) -> None:
    value = create(api, project).json["value"]

    for model in (ProjectKey, IdempotencyRecord, AuditEvent, SecretDay):
        for row in model._default_manager.values():
            assert value not in str(row)
            assert not any(value.encode() in bytes(cell) for cell in row.values() if isinstance(cell, bytes))


def test_wrong_encryption_keys_refuse_creation_and_store_nothing(
    api: ApiClient, project: Project, settings: object
) -> None:
    create(api, project)
    settings.ENCRYPTION_KEYS = ["not-a-fernet-key"]  # type: ignore[attr-defined]

    refused = create(api, project, {"name": "second"}, key="create-0002")

    assert_error(refused, 503)
    assert ProjectKey.objects.count() == 1
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.parametrize("length", [8, 200])
def test_an_idempotency_key_at_its_bounds_is_taken(api: ApiClient, project: Project, length: int) -> None:
    assert create(api, project, key="~" * length).status == 200


@pytest.mark.parametrize("key", [None, "", "1234567", "k" * 201, "grün-0001", "tab\t00001", "nul\x0000001"])
def test_a_bad_idempotency_key_is_refused(api: ApiClient, project: Project, key: str | None) -> None:
    assert_error(create(api, project, key=key), 400, "invalid_request", param="Idempotency-Key")
    assert not IdempotencyRecord.objects.exists()


def test_two_idempotency_keys_are_refused(api: ApiClient, project: Project) -> None:
    answer = exchange(
        "POST",
        f"/v1/organization/projects/{project.pk}/api_keys",
        [
            ("Authorization", f"Bearer {api.key}"),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "abcdefgh"),
            ("Idempotency-Key", "ijklmnop"),
        ],
        [b'{"name":"app"}'],
    )

    assert_error(answer, 400, param="Idempotency-Key")


def test_a_corrected_body_may_use_the_key_of_a_refused_one(api: ApiClient, project: Project) -> None:
    assert_error(create(api, project, {"name": 5}), 400, param="name")

    assert create(api, project).status == 200


@pytest.mark.parametrize(
    "extra", ["permissions", "status", "owner", "expires_at", "organization_id", "value", "id"]
)
def test_a_field_that_is_not_the_callers_to_set_is_refused(
    api: ApiClient, project: Project, extra: str
) -> None:
    assert_error(create(api, project, {"name": "app", extra: "x"}), 400, param=extra)
    assert not ProjectKey.objects.exists()


@pytest.mark.parametrize("name", [None, 5, True, ["app"], {}, "", "   ", "x" * 201])
def test_a_bad_name_is_refused(api: ApiClient, project: Project, name: object) -> None:
    assert_error(create(api, project, {"name": name}), 400, "invalid_request", param="name")


@pytest.mark.parametrize("name", ["x", "😀" * 200, " padded ", '"><img src=x onerror=alert(1)>'])
def test_a_name_is_kept_as_it_was_sent(api: ApiClient, project: Project, name: str) -> None:
    assert create(api, project, {"name": name}).json["name"] == name


def test_an_archived_project_gets_no_new_key_and_replays_the_old_one(
    api: ApiClient, project: Project
) -> None:
    first = create(api, project)
    services.archive_project(project=project, actor=SOMEONE)

    refused = create(api, project, key="create-0002")

    assert_error(refused, 409, "project_archived")
    assert refused.headers["x-should-retry"] == "false"
    assert not IdempotencyRecord.objects.filter(key="create-0002").exists()
    assert create(api, project).json["id"] == first.json["id"]


def test_a_strangers_project_looks_like_none_at_all(api: ApiClient, rival_project: Project) -> None:
    theirs = create(api, rival_project)
    nobodys = create(api, Project(id="00000000-0000-4000-8000-000000000000"))

    for answer in (theirs, nobodys):
        assert_error(answer, 404, "not_found")
        answer.json["error"].pop("request_id")
    assert theirs.error["message"] == nobodys.error["message"]
    assert not ProjectKey.objects.exists()


@pytest.mark.parametrize(
    "identifier", ["x", "%00", "a%2Fb", "9" * 201, "{00000000-0000-4000-8000-000000000000}"]
)
def test_an_id_that_is_not_one_is_not_found(api: ApiClient, identifier: str) -> None:
    answer = api.post(
        f"/v1/organization/projects/{identifier}/api_keys",
        {"name": "app"},
        headers={"Idempotency-Key": KEY},
    )

    assert_error(answer, 404)
