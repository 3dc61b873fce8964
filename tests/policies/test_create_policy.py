"""An administrator writes down a question, once, however often the request is sent."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from organization.models import AuditEvent, Organization, Project
from policies import services
from policies.models import Policy
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.error_checks import assert_error

URL = "/v1/organization/policies"
BODY = {"name": "Secrets", "rule": "Does the text give away a secret?"}


def create(api: ApiClient, body: object = None, key: str = "create-0001", **changes: Any) -> Answer:
    return api.post(URL, {**BODY, **changes} if body is None else body, headers={"Idempotency-Key": key})


def test_it_works(api: ApiClient, acme: Organization) -> None:
    answer = create(api)

    assert answer.status == 200
    made = Policy.objects.get()
    assert made.organization == acme
    assert answer.json == {
        "id": str(made.pk),
        "object": "organization.policy",
        "name": "Secrets",
        "description": "",
        "state": "draft",
        "revision": 1,
        "has_unpublished_changes": True,
        "created_at": int(made.created_at.timestamp()),
        "updated_at": int(made.updated_at.timestamp()),
        "draft": {
            "rule": "Does the text give away a secret?",
            "direction": "both",
            "mode": "monitoring",
            "scope": "organization",
            "project_ids": [],
            "match_threshold_basis_points": None,
            "base_version": 0,
        },
        "current_version": None,
        "published": None,
    }


def test_every_field_can_be_given(api: ApiClient, project: Project) -> None:
    draft: dict[str, Any] = {
        "direction": "response",
        "mode": "enforcing",
        "scope": "projects",
        "project_ids": [str(project.pk)],
        "match_threshold_basis_points": 7500,
    }

    answer = create(api, description="d" * 240, **draft)

    assert answer.status == 200
    assert answer.json["description"] == "d" * 240
    assert {name: answer.json["draft"][name] for name in draft} == draft


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " "),
        ("name", "n" * 81),
        ("name", 5),
        ("name", None),
        ("rule", ""),
        ("rule", "Tell me"),
        ("rule", "Is it? "),
        ("rule", "Is it?\n"),
        ("rule", "Is it\uff1f"),
        ("rule", "x" * 20_000 + "?"),
        ("rule", None),
        ("description", "d" * 241),
        ("description", None),
        ("description", 5),
        ("direction", "sideways"),
        ("direction", None),
        ("direction", ["request"]),
        ("mode", "paused"),
        ("mode", True),
        ("scope", "everyone"),
        ("project_ids", "all"),
        ("project_ids", None),
        ("project_ids", {"0": "x"}),
        ("project_ids", [5]),
        ("project_ids", [""]),
        ("project_ids", [str(uuid.uuid4())] * 1001),
        ("match_threshold_basis_points", 0),
        ("match_threshold_basis_points", 10_000),
        ("match_threshold_basis_points", "5000"),
        ("match_threshold_basis_points", 5000.5),
        ("match_threshold_basis_points", True),
        ("state", "enforcing"),
        ("revision", 1),
    ],
)
def test_a_field_outside_its_bounds_is_refused(api: ApiClient, field: str, value: Any) -> None:
    answer = create(api, **{field: value})

    assert_error(answer, 400)
    assert answer.error["param"].startswith(field)
    assert not Policy.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "n" * 80),
        ("rule", "?"),
        ("rule", "x" * 19_999 + "?"),
        ("rule", "Does it say “100 %”?"),
        ("description", ""),
        ("match_threshold_basis_points", 1),
        ("match_threshold_basis_points", 9999),
        ("match_threshold_basis_points", 5000.0),
        ("match_threshold_basis_points", None),
    ],
)
def test_the_bounds_themselves_are_accepted(api: ApiClient, field: str, value: Any) -> None:
    answer = create(api, **{field: value})

    assert answer.status == 200, answer.body
    assert {**answer.json, **answer.json["draft"]}[field] == value


@pytest.mark.parametrize("missing", ["name", "rule"])
def test_name_and_rule_are_required(api: ApiClient, missing: str) -> None:
    body = {name: value for name, value in BODY.items() if name != missing}

    assert_error(create(api, body), 400, param=missing)


def test_an_idempotency_key_is_required(api: ApiClient) -> None:
    assert_error(api.post(URL, BODY), 400, param="Idempotency-Key")


def test_a_replay_is_the_creations_answer_whatever_was_edited_since(api: ApiClient) -> None:
    first = create(api)
    made = Policy.objects.get()
    services.edit_policy(policy=made, revision=1, changes={"name": "Renamed"}, actor=SOMEONE)
    services.publish_policy(policy=made, actor=SOMEONE)

    replay = create(api)

    assert replay.body == first.body
    assert Policy.objects.get().revision == 3
    assert AuditEvent.objects.filter(action="policy.create").count() == 1


def test_another_body_under_the_same_key_conflicts(api: ApiClient) -> None:
    create(api)

    assert_error(create(api, name="Other"), 409, "idempotency_mismatch")
    # Null is said, and absent is not.
    assert_error(create(api, match_threshold_basis_points=None), 409, "idempotency_mismatch")
    assert Policy.objects.count() == 1


def test_a_colleagues_key_does_not_replay(api: ApiClient, acme: Organization) -> None:
    create(api)

    assert_error(create(ApiClient(make_admin_key(acme).value)), 409, "idempotency_mismatch")


def test_a_strangers_project_is_refused_as_an_unknown_one(
    api: ApiClient, project: Project, rival_project: Project
) -> None:
    refusals = [
        create(api, scope="projects", project_ids=[str(project.pk), identifier])
        for identifier in (str(rival_project.pk), str(uuid.uuid4()), "no-uuid")
    ]

    for refused in refusals:
        assert_error(refused, 404, "not_found", param="project_ids[1]")
    assert len({refused.error["message"] for refused in refusals}) == 1
    assert not Policy.objects.exists()


def test_a_project_is_named_once(api: ApiClient, project: Project) -> None:
    twice = [str(project.pk), str(project.pk).upper()]

    answer = create(api, scope="projects", project_ids=twice)

    assert answer.json["draft"]["project_ids"] == [str(project.pk)]


def test_another_organization_may_use_the_same_key(api: ApiClient, rival_api: ApiClient) -> None:
    ours, theirs = create(api), create(rival_api)

    assert ours.json["id"] != theirs.json["id"]
    assert_error(api.get(f"{URL}/{theirs.json['id']}"), 404, "not_found")


def test_there_is_no_list_and_no_publish(api: ApiClient) -> None:
    made = create(api).json["id"]

    assert_error(api.get(URL), 405)
    for verb in ("publish", "resume"):
        assert_error(api.post(f"{URL}/{made}/{verb}", {"revision": 1}), 404)
    assert_error(api.delete(f"{URL}/{made}"), 405)


def test_a_body_that_is_not_json(api: ApiClient) -> None:
    headers = [("Authorization", f"Bearer {api.key}"), ("Content-Type", "text/plain")]

    assert_error(exchange("POST", URL, headers, [b"{}"]), 415)
