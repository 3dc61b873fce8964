"""An administrator edits a draft, and nobody's edit is lost."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.conf import settings

from organization.models import AuditEvent, Organization, Project
from policies import services
from policies.models import MAX_REVISION, Policy
from tests.factories import SOMEONE
from tests.harness.client import Answer, ApiClient
from tests.harness.error_checks import assert_error
from tests.policies.factories import RULE


def patch(api: ApiClient, policy: Policy, **body: Any) -> Answer:
    return api.request("PATCH", f"/v1/organization/policies/{policy.pk}", body)


def test_it_works(api: ApiClient, policy: Policy) -> None:
    answer = patch(api, policy, revision=1, rule="Is it so?", direction="request", mode="enforcing")

    assert answer.status == 200
    assert answer.json["revision"] == 2
    assert answer.json["state"] == "draft"
    assert answer.json["draft"] == {
        "rule": "Is it so?",
        "direction": "request",
        "mode": "enforcing",
        "scope": "organization",
        "project_ids": [],
        "match_threshold_basis_points": None,
        "base_version": 0,
    }
    assert answer.json == api.get(f"/v1/organization/policies/{policy.pk}").json
    event = AuditEvent.objects.get(action="policy.edit")
    assert event.request_id == answer.headers["x-request-id"]
    assert event.details == {
        "revision": 2,
        "version": None,
        "rule": "Is it so?",
        "direction": "request",
        "mode": "enforcing",
        "before": {"rule": RULE, "direction": "both", "mode": "monitoring"},
    }


def test_what_is_published_stays_until_the_next_publication(api: ApiClient, published: Policy) -> None:
    answer = patch(api, published, revision=2, rule="Is it new?", match_threshold_basis_points=100)

    assert answer.json["state"] == "enforcing"
    assert answer.json["has_unpublished_changes"] is True
    assert answer.json["draft"]["rule"] == "Is it new?"
    assert answer.json["draft"]["base_version"] == answer.json["current_version"] == 1
    assert answer.json["published"]["rule"] == RULE
    again = services.publish_policy(policy=published, actor=SOMEONE)
    assert again.current_version is not None
    assert (again.current_version.version, again.current_version.rule) == (2, "Is it new?")


def test_going_back_leaves_nothing_to_publish(api: ApiClient, published: Policy) -> None:
    patch(api, published, revision=2, rule="Is it new?")
    answer = patch(api, published, revision=3, rule=RULE)

    assert answer.json["has_unpublished_changes"] is False


def test_a_null_threshold_restores_the_default(api: ApiClient, policy: Policy) -> None:
    assert patch(api, policy, revision=1, match_threshold_basis_points=1).status == 200

    answer = patch(api, policy, revision=2, match_threshold_basis_points=None)

    assert answer.json["draft"]["match_threshold_basis_points"] is None
    published = services.publish_policy(policy=policy, actor=SOMEONE).current_version
    assert published is not None
    assert published.match_threshold_basis_points == settings.GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS


def test_a_stale_revision_conflicts_and_changes_nothing(api: ApiClient, policy: Policy) -> None:
    patch(api, policy, revision=1, name="First")

    for revision in (1, 3, MAX_REVISION):
        refused = patch(api, policy, revision=revision, name="Second")
        assert_error(refused, 409, "stale_revision", param="revision")
        assert refused.headers["x-should-retry"] == "false"
    policy.refresh_from_db()
    assert (policy.name, policy.revision) == ("First", 2)


@pytest.mark.parametrize("revision", [0, -1, 2147483648, 10**29, True, "1", 1.5, 1e300, None, [1]])
def test_a_revision_that_cannot_exist_is_refused(api: ApiClient, policy: Policy, revision: Any) -> None:
    assert_error(patch(api, policy, revision=revision, name="x"), 400, param="revision")
    assert_error(patch(api, policy, name="x"), 400, param="revision")


def test_the_revision_alone_is_an_edit(api: ApiClient, policy: Policy) -> None:
    answer = patch(api, policy, revision=1)

    assert (answer.status, answer.json["revision"]) == (200, 2)


def test_the_last_revision_is_a_conflict_and_no_accident(api: ApiClient, published: Policy) -> None:
    Policy.objects.update(revision=MAX_REVISION)

    assert_error(patch(api, published, revision=MAX_REVISION, name="x"), 409, "policy_state")
    pause = api.post(f"/v1/organization/policies/{published.pk}/pause", {"revision": MAX_REVISION})
    assert_error(pause, 409, "policy_state")


@pytest.mark.parametrize(
    "change",
    [{"rule": "no question"}, {"name": ""}, {"mode": None}, {"project_ids": "x"}, {"state": "paused"}],
)
def test_a_field_outside_its_bounds_is_refused(
    api: ApiClient, policy: Policy, change: dict[str, Any]
) -> None:
    assert_error(patch(api, policy, revision=1, **change), 400)
    policy.refresh_from_db()
    assert policy.revision == 1


def test_another_tenants_policy_is_not_found(rival_api: ApiClient, policy: Policy) -> None:
    theirs = patch(rival_api, policy, revision=1, name="Mine")
    nobodys = rival_api.request("PATCH", f"/v1/organization/policies/{uuid.uuid4()}", {"revision": 1})

    assert_error(theirs, 404, "not_found")
    assert theirs.error["message"] == nobodys.error["message"]
    assert_error(rival_api.get(f"/v1/organization/policies/{policy.pk}"), 404)
    policy.refresh_from_db()
    assert policy.revision == 1


def test_another_tenants_project_is_as_unknown_as_none(
    api: ApiClient, policy: Policy, rival_project: Project
) -> None:
    theirs = patch(api, policy, revision=1, project_ids=[str(rival_project.pk)])
    nobodys = patch(api, policy, revision=1, project_ids=[str(uuid.uuid4())])

    assert_error(theirs, 404, "not_found", param="project_ids[0]")
    assert theirs.error["message"] == nobodys.error["message"]


def test_ids_of_any_shape_are_not_found(api: ApiClient, acme: Organization) -> None:
    for identifier in ("x", "%00", "pol_1", "0" * 200, "%2e%2e"):
        assert_error(api.get(f"/v1/organization/policies/{identifier}"), 404)
