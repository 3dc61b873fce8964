"""An administrator ends a project."""

from __future__ import annotations

import uuid

from organization.models import AuditEvent, Project
from tests.harness.client import ApiClient
from tests.harness.error_checks import assert_error


def url(project: Project) -> str:
    return f"/v1/organization/projects/{project.pk}/archive"


def test_an_archived_project_is_reported_as_deleted(api: ApiClient, project: Project) -> None:
    # As the SDKs send it: a content type, and no body.
    answer = api.post(url(project), headers={"Content-Type": "application/json", "Content-Length": "0"})

    assert answer.status == 200
    assert answer.json == {"id": str(project.pk), "object": "organization.project.deleted", "deleted": True}
    project.refresh_from_db()
    assert project.archived_at is not None
    assert AuditEvent.objects.get(action="project.archive").target_id == str(project.pk)


def test_archiving_again_changes_nothing(api: ApiClient, project: Project) -> None:
    first = api.post(url(project))
    project.refresh_from_db()
    moment = project.archived_at

    second = api.post(url(project))

    assert second.body == first.body
    project.refresh_from_db()
    assert project.archived_at == moment
    assert AuditEvent.objects.filter(action="project.archive").count() == 1


def test_a_strangers_project_cannot_be_archived(api: ApiClient, rival_project: Project) -> None:
    theirs = api.post(url(rival_project))
    nobodys = api.post(url(Project(id=uuid.uuid4())))

    assert_error(theirs, 404, "not_found")
    assert theirs.error["message"] == nobodys.error["message"]
    rival_project.refresh_from_db()
    assert rival_project.archived_at is None


def test_a_body_or_a_query_is_refused(api: ApiClient, project: Project) -> None:
    assert_error(api.post(url(project), {"confirm": True}), 400)
    assert_error(api.post(url(project) + "?confirm=1"), 400, param="confirm")
    project.refresh_from_db()
    assert project.is_active
