"""A draft is published, paused and resumed; each version stays what it was."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import DatabaseError, IntegrityError, connection, transaction

from gateway_site.api.errors import PolicyStateConflict
from organization.models import AuditEvent, Organization
from policies import services
from policies.models import Policy, PolicyEpoch, PolicyVersion, Verdict
from tests.factories import SOMEONE
from tests.harness.client import Answer, ApiClient
from tests.harness.error_checks import assert_error
from tests.policies.factories import RULE, make_policy


def pause(api: ApiClient, policy: Policy, revision: Any) -> Answer:
    return api.post(f"/v1/organization/policies/{policy.pk}/pause", {"revision": revision})


def read(api: ApiClient, policy: Policy) -> Any:
    return api.get(f"/v1/organization/policies/{policy.pk}").json


def test_it_works(api: ApiClient, policy: Policy) -> None:
    services.publish_policy(policy=policy, actor=SOMEONE)
    published = read(api, policy)
    assert (published["state"], published["revision"]) == ("monitoring", 2)
    assert (published["current_version"], published["has_unpublished_changes"]) == (1, False)
    version = PolicyVersion.objects.get()
    assert published["published"] == {
        "id": str(version.pk),
        "object": "organization.policy.version",
        "version": 1,
        "rule": RULE,
        "direction": "both",
        "mode": "monitoring",
        "scope": "organization",
        "project_ids": [],
        "match_threshold_basis_points": django_settings.GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS,
        "published_at": int(version.published_at.timestamp()),
        "current": True,
    }

    answer = pause(api, policy, 2)

    assert answer.status == 200
    assert (answer.json["state"], answer.json["revision"]) == ("paused", 3)
    assert answer.json["published"] == published["published"]
    services.resume_policy(policy=policy, actor=SOMEONE)
    assert (read(api, policy)["state"], read(api, policy)["revision"]) == ("monitoring", 4)
    actions = AuditEvent.objects.filter(action__startswith="policy.").order_by("id")
    assert [event.action for event in actions] == [
        "policy.create",
        "policy.publish",
        "policy.pause",
        "policy.resume",
    ]


def test_a_mode_given_at_publication_is_the_drafts_too(api: ApiClient, policy: Policy) -> None:
    services.publish_policy(policy=policy, mode="enforcing", actor=SOMEONE)

    shown = read(api, policy)
    assert shown["state"] == shown["draft"]["mode"] == shown["published"]["mode"] == "enforcing"
    assert shown["has_unpublished_changes"] is False


def test_publishing_in_the_mode_in_force_takes_back_the_drafts_other_mode(policy: Policy) -> None:
    published = services.publish_policy(policy=policy, mode="monitoring", actor=SOMEONE)
    services.edit_policy(
        policy=published, revision=published.revision, changes={"mode": "enforcing"}, actor=SOMEONE
    )

    services.publish_policy(policy=published, mode="monitoring", actor=SOMEONE)

    published.refresh_from_db()
    assert (published.state, published.mode) == ("monitoring", "monitoring")
    assert not published.has_unpublished_changes
    assert published.versions.count() == 1


def test_publishing_again_changes_nothing_unless_there_is_something_new(policy: Policy) -> None:
    first = services.publish_policy(policy=policy, actor=SOMEONE)
    second = services.publish_policy(policy=policy, actor=SOMEONE)
    assert second.revision == first.revision
    third = services.publish_policy(policy=policy, mode="enforcing", actor=SOMEONE)

    assert PolicyVersion.objects.count() == 2
    assert third.state == "enforcing"
    assert AuditEvent.objects.filter(action="policy.publish").count() == 2


def test_publishing_a_paused_policy_lets_it_apply_again(published: Policy) -> None:
    services.pause_policy(policy=published, actor=SOMEONE)

    again = services.publish_policy(policy=published, actor=SOMEONE)

    assert again.state == "enforcing"
    assert PolicyVersion.objects.count() == 1


def test_a_draft_for_projects_that_names_none_is_not_published(acme: Organization) -> None:
    policy = make_policy(acme, scope="projects")

    with pytest.raises(PolicyStateConflict, match="names none"):
        services.publish_policy(policy=policy, actor=SOMEONE)
    assert not PolicyVersion.objects.exists()


def test_a_draft_cannot_be_paused_or_resumed(api: ApiClient, policy: Policy) -> None:
    assert_error(pause(api, policy, 1), 409, "policy_state")
    with pytest.raises(PolicyStateConflict):
        services.resume_policy(policy=policy, actor=SOMEONE)
    policy.refresh_from_db()
    assert (policy.state, policy.revision) == ("draft", 1)


def test_a_stale_revision_does_not_pause(api: ApiClient, published: Policy) -> None:
    assert_error(pause(api, published, 1), 409, "stale_revision", param="revision")
    published.refresh_from_db()
    assert published.state == "enforcing"


def test_pausing_twice_changes_nothing_the_second_time(api: ApiClient, published: Policy) -> None:
    first = pause(api, published, 2)
    assert_error(pause(api, published, 2), 409, "stale_revision")

    assert pause(api, published, 3).json == first.json


@pytest.mark.parametrize("body", [{}, {"revision": "2"}, {"revision": 2, "state": "draft"}, {"revision": 0}])
def test_a_wrong_body_does_not_pause(api: ApiClient, published: Policy, body: Any) -> None:
    assert_error(api.post(f"/v1/organization/policies/{published.pk}/pause", body), 400)


def test_another_tenants_policy_is_not_found(rival_api: ApiClient, published: Policy) -> None:
    assert_error(pause(rival_api, published, 2), 404, "not_found")
    published.refresh_from_db()
    assert published.state == "enforcing"


def test_a_version_cannot_be_changed_or_deleted(published: Policy) -> None:
    table = PolicyVersion._meta.db_table
    for statement in (f"UPDATE {table} SET rule = 'Is it another?'", f"DELETE FROM {table}"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert PolicyVersion.objects.get().rule == RULE


@pytest.mark.parametrize(
    "change",
    [
        {"state": "enforcing"},  # and never published
        {"state": "unheard of"},
        {"revision": 0},
        {"revision": 2**31},
        {"rule": "no question"},
        {"name": ""},
        {"direction": "sideways"},
        {"mode": "paused"},
        {"scope": "everyone"},
        {"match_threshold_basis_points": 0},
        {"match_threshold_basis_points": 10_000},
    ],
)
def test_the_database_refuses_a_policy_that_cannot_be(policy: Policy, change: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Policy.objects.update(**change)


def test_the_database_refuses_a_published_draft(published: Policy) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Policy.objects.update(state="draft")


def test_the_database_refuses_a_score_for_what_was_not_judged(published: Policy, project: Any) -> None:
    for fields in ({"outcome": "inconclusive", "score": 0.5}, {"outcome": "match", "score": None}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Verdict.objects.create(
                version=published.current_version,
                project=project,
                request_id="00000000-0000-0000-0000-000000000000",
                direction="request",
                mode="enforcing",
                threshold_basis_points=5000,
                judge="quoted",
                latency_ms=1,
                **fields,
            )


def test_the_epoch_moves_with_what_is_in_force_and_with_nothing_else(policy: Policy) -> None:
    def epoch() -> int:
        return PolicyEpoch.objects.values_list("value", flat=True).first() or 0

    def edit(**changes: Any) -> None:
        policy.refresh_from_db()
        services.edit_policy(policy=policy, revision=policy.revision, changes=changes, actor=SOMEONE)

    edit(name="Draft's own")
    assert epoch() == 0
    services.publish_policy(policy=policy, actor=SOMEONE)
    assert epoch() == 1
    edit(rule="Is it another?")
    services.resume_policy(policy=policy, actor=SOMEONE)  # it is not paused
    assert epoch() == 1
    edit(name="Renamed")
    assert epoch() == 2
    services.pause_policy(policy=policy, actor=SOMEONE)
    services.pause_policy(policy=policy, actor=SOMEONE)
    assert epoch() == 3
    services.resume_policy(policy=policy, actor=SOMEONE)
    assert epoch() == 4
