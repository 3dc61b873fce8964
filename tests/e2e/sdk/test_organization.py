"""The real OpenAI SDK against a running server."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from organization.models import AdminKey, Project, ProjectKey
from tests.factories import make_admin_key, make_project_key
from tests.harness.live_server import live_server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("server", ["serve", pytest.param("daphne", marks=pytest.mark.one_database)])
def test_an_administrator_scripts_the_organization(
    process_environment: dict[str, str], project: Project, server: str
) -> None:
    acme = project.organization
    made = [make_admin_key(acme) for _ in range(5)]
    with live_server(process_environment, server=server) as running:
        client = OpenAI(
            base_url=f"{running.address}/v1", api_key="unused", admin_api_key=made[0].value, max_retries=0
        )
        keys = client.admin.organization.admin_api_keys

        walked = [key.id for key in keys.list(limit=2)]
        deleted = keys.delete(made[4].key.pk.__str__())
        raw = keys.with_raw_response.list()

        assert walked == [str(each.key.pk) for each in made]
        assert deleted.deleted
        assert raw.headers["x-request-id"] == raw.headers["request-id"]
        archived = client.admin.organization.projects.archive(str(project.pk))
        assert archived.id == str(project.pk)
        with pytest.raises(openai.NotFoundError) as not_found:
            keys.delete("00000000-0000-4000-8000-000000000000")
        assert not_found.value.request_id == not_found.value.body["request_id"]  # type: ignore[index]
        with pytest.raises(openai.AuthenticationError):
            client.with_options(admin_api_key=made[4].value).admin.organization.admin_api_keys.list()
    assert AdminKey.objects.exclude(revoked_at=None).count() == 1


def test_a_key_is_created_with_a_raw_post_and_strict_types_accept_the_list(
    process_environment: dict[str, str], project: Project
) -> None:
    made = make_admin_key(project.organization)
    customer = make_project_key(project)
    with live_server(process_environment) as running:
        client = OpenAI(
            base_url=f"{running.address}/v1",
            api_key=customer.value,
            admin_api_key=made.value,
            max_retries=0,
            _strict_response_validation=True,
        )
        created = client.with_options(api_key=made.value).post(
            f"/organization/projects/{project.pk}/api_keys",
            cast_to=dict[str, object],
            body={"name": "app"},
            options={"headers": {"Idempotency-Key": "sdk-00000001"}},
        )
        with pytest.raises(openai.PermissionDeniedError):
            client.get("/organization/admin_api_keys", cast_to=dict[str, object])

        assert [key.id for key in client.admin.organization.admin_api_keys.list()] == [str(made.key.pk)]
    assert str(ProjectKey.objects.get(name="app", pk=str(created["id"])).pk) == created["id"]
