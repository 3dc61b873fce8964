"""An administrator sees which policies apply to a project by themselves."""

from __future__ import annotations

import uuid

import pytest

from gateway_site.api.errors import PolicyNotFound
from organization import services as organization_services
from organization.models import Organization, Project
from policies import services
from policies.enforcement import attachment
from policies.models import Policy
from tests.factories import SOMEONE
from tests.harness.client import Answer, ApiClient
from tests.harness.error_checks import assert_error
from tests.policies.factories import make_policy, make_published


def effective(api: ApiClient, project: Project) -> Answer:
    return api.get(f"/v1/organization/projects/{project.pk}/effective_policies")


def names(api: ApiClient, project: Project) -> list[str]:
    return [each["name"] for each in effective(api, project).json["data"]]


@pytest.fixture
def other(acme: Organization) -> Project:
    return organization_services.create_project(organization=acme, name="Other", actor=SOMEONE)[0]


def test_it_works(api: ApiClient, project: Project, published: Policy) -> None:
    answer = effective(api, project)

    assert answer.status == 200
    assert answer.json == {
        "object": "list",
        "data": [
            {
                "id": str(published.pk),
                "object": "organization.effective_policy",
                "name": "Internal",
                "version": 1,
                "direction": "both",
                "mode": "enforcing",
                "scope": "organization",
                "source": "organization",
            }
        ],
    }


def test_scope_decides_where_a_policy_applies(
    api: ApiClient, acme: Organization, project: Project, other: Project
) -> None:
    make_published(acme, name="all", mode="monitoring")
    make_published(acme, name="some", scope="projects", project_ids=[str(project.pk)])
    # Ids that stand in a draft of another scope mean nothing.
    make_published(acme, name="named", scope="unattached", project_ids=[str(project.pk)])
    make_policy(acme, name="draft")

    assert names(api, project) == ["all", "some"]
    assert names(api, other) == ["all"]


def test_what_is_paused_applies_no_more(api: ApiClient, project: Project, published: Policy) -> None:
    services.pause_policy(policy=published, actor=SOMEONE)
    assert names(api, project) == []

    services.resume_policy(policy=published, actor=SOMEONE)
    assert names(api, project) == ["Internal"]


def test_an_edit_shows_when_it_is_published(api: ApiClient, project: Project, published: Policy) -> None:
    services.edit_policy(policy=published, revision=2, changes={"scope": "unattached"}, actor=SOMEONE)
    assert names(api, project) == ["Internal"]

    services.publish_policy(policy=published, actor=SOMEONE)
    assert names(api, project) == []


def test_an_archived_project_can_still_be_asked_about(
    api: ApiClient, project: Project, published: Policy
) -> None:
    organization_services.archive_project(project=project, actor=SOMEONE)

    assert names(api, project) == ["Internal"]


def test_a_stranger_sees_no_project_and_no_policy(
    api: ApiClient, rival_api: ApiClient, project: Project, rival_project: Project, published: Policy
) -> None:
    assert_error(effective(rival_api, project), 404, "not_found")
    assert names(rival_api, rival_project) == []


def test_a_query_is_refused(api: ApiClient, project: Project) -> None:
    url = f"/v1/organization/projects/{project.pk}/effective_policies?limit=1"
    assert_error(api.get(url), 400, param="limit")


# --- what a request names -----------------------------------------------------------------------------


def test_a_request_adds_policies_by_id_each_once(acme: Organization, project: Project) -> None:
    automatic = make_published(acme, name="automatic")
    named = make_published(acme, name="named", scope="unattached")
    snapshot = attachment.snapshot_of(acme.pk)
    ids = [str(named.pk), str(automatic.pk), str(named.pk).upper()] * 300

    versions = attachment.versions_for_request(snapshot, project.pk, ids)

    assert [version.name for version in versions] == ["automatic", "named"]


def test_every_id_that_is_not_in_force_is_refused_alike(
    acme: Organization, rival: Organization, project: Project
) -> None:
    published = make_published(acme)
    refused = {
        "unknown": str(uuid.uuid4()),
        "malformed": "policy_provider_1",
        "draft": str(make_policy(acme).pk),
        "paused": str(services.pause_policy(policy=make_published(acme), actor=SOMEONE).pk),
        "strangers": str(make_published(rival).pk),
        "version": str(published.current_version_id),
    }
    snapshot = attachment.snapshot_of(acme.pk)

    said = set()
    for identifier in refused.values():
        with pytest.raises(PolicyNotFound) as caught:
            attachment.versions_for_request(snapshot, project.pk, [str(published.pk), identifier])
        said.add((caught.value.status, caught.value.code, caught.value.message, caught.value.param))

    assert said == {(404, "policy_not_found", PolicyNotFound.message, "policy_ids[1]")}
