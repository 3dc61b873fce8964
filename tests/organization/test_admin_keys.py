"""An administrator lists and revokes the organization's Admin API keys."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from organization.models import AdminKey, AuditEvent, Organization
from tests.factories import make_admin_key
from tests.harness.client import ApiClient
from tests.harness.error_checks import assert_error

URL = "/v1/organization/admin_api_keys"


def ids(*keys: AdminKey) -> list[str]:
    return [str(key.pk) for key in keys]


def test_admin_keys_of_the_organization_are_listed(acme: Organization, api: ApiClient) -> None:
    answer = api.get(URL)

    assert answer.status == 200
    key = AdminKey.objects.get()
    assert answer.json == {
        "object": "list",
        "data": [
            {
                "id": str(key.pk),
                "object": "organization.admin_api_key",
                "name": "ops",
                "redacted_value": key.redacted_value,
                "created_at": int(key.created_at.timestamp()),
                "last_used_at": int(key.last_used_at.timestamp()) if key.last_used_at else None,
                "expires_at": None,
                "owner": {"id": str(acme.pk), "type": "organization"},
                "permissions": sorted(AdminKey.AVAILABLE_PERMISSIONS),
            }
        ],
        "has_more": False,
        "first_id": str(key.pk),
        "last_id": str(key.pk),
    }
    assert key.last_used_at is not None
    assert "value" not in answer.json["data"][0]


def test_pages_follow_each_other_in_order_of_creation(acme: Organization, api: ApiClient) -> None:
    same_moment = timezone.now()
    for _ in range(5):
        make_admin_key(acme)
    AdminKey.objects.update(created_at=same_moment)  # ties are broken by id
    everyone = ids(*AdminKey.objects.order_by("id"))

    seen, cursor = [], ""
    for size, has_more in ((2, True), (3, True), (1, False)):
        page = api.get(f"{URL}?limit={size}{cursor}").json
        seen += [key["id"] for key in page["data"]]
        assert page["has_more"] is has_more
        assert page["last_id"] == seen[-1]
        cursor = f"&after={page['last_id']}"

    assert seen == everyone
    assert [key["id"] for key in api.get(f"{URL}?order=desc").json["data"]] == everyone[::-1]


def test_the_page_after_the_last_is_empty(api: ApiClient) -> None:
    last = api.get(URL).json["last_id"]

    page = api.get(f"{URL}?after={last}").json

    assert page == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


def test_a_key_revoked_between_two_pages_still_marks_the_place(acme: Organization, api: ApiClient) -> None:
    make_admin_key(acme)
    make_admin_key(acme)
    first = api.get(f"{URL}?limit=2").json
    api.delete(f"{URL}/{first['last_id']}")

    second = api.get(f"{URL}?limit=2&after={first['last_id']}").json

    assert len(second["data"]) == 1
    assert second["data"][0]["id"] not in [key["id"] for key in first["data"]]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=1.0", "limit"),
        ("limit=1e1", "limit"),
        ("limit=", "limit"),
        ("limit=%D9%A1", "limit"),  # a digit, but not one of ours
        ("limit=9999999999999999999999", "limit"),
        ("limit=5&limit=6", "limit"),
        ("order=down", "order"),
        ("after=", "after"),
        ("after=" + "x" * 201, "after"),
        ("offset=3", "offset"),
    ],
)
def test_a_bad_query_is_refused(api: ApiClient, query: str, param: str) -> None:
    assert_error(api.get(f"{URL}?{query}"), 400, "invalid_request", param=param)


def test_a_strangers_key_is_no_cursor(rival: Organization, api: ApiClient) -> None:
    theirs = api.get(f"{URL}?after={make_admin_key(rival).key.pk}")
    nobodys = api.get(f"{URL}?after={uuid.uuid4()}")

    assert_error(theirs, 404, "not_found", param="after")
    assert (
        theirs.error["message"] == nobodys.error["message"] == api.get(f"{URL}?after=x%00").error["message"]
    )


def test_a_strangers_keys_are_not_listed(rival: Organization, api: ApiClient) -> None:
    make_admin_key(rival)

    assert len(api.get(URL).json["data"]) == 1


def test_revoking_ends_the_key_at_once(acme: Organization, api: ApiClient) -> None:
    other = make_admin_key(acme)
    other_api = ApiClient(other.value)
    assert other_api.get(URL).status == 200

    answer = api.delete(f"{URL}/{other.key.pk}", headers={"Content-Type": "application/json"})

    assert answer.status == 200
    assert answer.json == {
        "id": str(other.key.pk),
        "object": "organization.admin_api_key.deleted",
        "deleted": True,
    }
    assert_error(other_api.get(URL), 401, "invalid_api_key")
    assert str(other.key.pk) not in str(api.get(URL).json)
    assert AuditEvent.objects.filter(action="admin_key.revoke", target_id=str(other.key.pk)).count() == 1


def test_revoking_again_changes_nothing(acme: Organization, api: ApiClient) -> None:
    other = make_admin_key(acme)
    first = api.delete(f"{URL}/{other.key.pk}")
    moment = AdminKey.objects.get(pk=other.key.pk).revoked_at

    second = api.delete(f"{URL}/{other.key.pk}")

    assert second.body == first.body
    assert AdminKey.objects.get(pk=other.key.pk).revoked_at == moment
    assert AuditEvent.objects.filter(action="admin_key.revoke").count() == 1


def test_a_strangers_key_cannot_be_revoked(rival: Organization, api: ApiClient) -> None:
    theirs = make_admin_key(rival)

    answer = api.delete(f"{URL}/{theirs.key.pk}")
    nobodys = api.delete(f"{URL}/{uuid.uuid4()}")

    assert_error(answer, 404, "not_found")
    assert answer.error["message"] == nobodys.error["message"]
    theirs.key.refresh_from_db()
    assert theirs.key.revoked_at is None


def test_a_body_where_none_belongs_is_refused(acme: Organization, api: ApiClient) -> None:
    other = make_admin_key(acme)

    assert_error(api.delete(f"{URL}/{other.key.pk}", body={"force": True}), 400)


def test_an_expired_key_is_still_listed_with_its_expiry(acme: Organization, api: ApiClient) -> None:
    moment = timezone.now() - timedelta(seconds=1)
    expired = make_admin_key(acme, expires_at=moment)

    listed = {key["id"]: key for key in api.get(URL).json["data"]}

    assert listed[str(expired.key.pk)]["expires_at"] == int(moment.timestamp())
