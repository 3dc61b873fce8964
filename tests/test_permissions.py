"""Every route, with every kind of credential."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from organization import services
from organization.models import Organization, Project
from organization.permissions import ADMIN_PERMISSIONS
from tests.client import Answer, ApiClient, exchange
from tests.conftest import SOMEONE, make_admin_key, make_project_key
from tests.contract import assert_error
from tests.routes import documented_routes

# (method, path, permission, body, status with the permission)
ROUTES: list[tuple[str, str, str, Any, int]] = [
    (
        "POST",
        "/v1/organization/projects/{project_id}/api_keys",
        "project_api_keys:create",
        {"name": "app"},
        200,
    ),
    ("POST", "/v1/organization/projects/{project_id}/archive", "projects:create", None, 200),
    ("GET", "/v1/organization/admin_api_keys", "admin_api_keys:read", None, 200),
    ("DELETE", "/v1/organization/admin_api_keys/{api_key_id}", "admin_api_keys:revoke", None, 200),
]
EVERY_ROUTE = pytest.mark.parametrize(
    ("method", "path", "permission", "body", "allowed"), ROUTES, ids=[f"{row[0]} {row[1]}" for row in ROUTES]
)


@pytest.fixture
def send(project: Project, acme: Organization) -> Any:
    target = make_admin_key(acme)

    def send(value: str | None, method: str, path: str, body: Any) -> Answer:
        filled = path.format(project_id=project.pk, api_key_id=target.key.pk)
        return ApiClient(value).request(method, filled, body, headers={"Idempotency-Key": "routes-0001"})

    return send


def test_the_table_has_every_route_of_the_document() -> None:
    documented = {(route.method, route.path, route.permission) for route in documented_routes()}

    assert {(method, path, permission) for method, path, permission, _, _ in ROUTES} == documented


@EVERY_ROUTE
def test_with_exactly_its_permission(
    send: Any, acme: Organization, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    key = make_admin_key(acme, permissions=[permission])

    assert send(key.value, method, path, body).status == allowed


@EVERY_ROUTE
def test_without_its_permission(
    send: Any, acme: Organization, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    others = [each for each in ADMIN_PERMISSIONS if each != permission]
    key = make_admin_key(acme, permissions=others)

    answer = send(key.value, method, path, body)

    assert_error(answer, 403, "permission_denied")
    assert permission in answer.error["message"]


@EVERY_ROUTE
def test_with_no_key(send: Any, method: str, path: str, permission: str, body: Any, allowed: int) -> None:
    answer = send(None, method, path, body)

    assert_error(answer, 401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


@EVERY_ROUTE
@pytest.mark.parametrize("value", ["garbage", "gwa_" + "x" * 49, "' OR 1=1 --", ""])
def test_with_garbage(
    send: Any, method: str, path: str, permission: str, body: Any, allowed: int, value: str
) -> None:
    assert_error(send(value, method, path, body), 401, "invalid_api_key")


@EVERY_ROUTE
def test_with_a_customer_key(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    assert_error(send(make_project_key(project).value, method, path, body), 403, "wrong_key_kind")


@EVERY_ROUTE
@pytest.mark.parametrize("end", ["revoked", "suspended", "expired"])
def test_with_a_key_that_has_ended(
    send: Any, acme: Organization, method: str, path: str, permission: str, body: Any, allowed: int, end: str
) -> None:
    expires_at = timezone.now() - timedelta(seconds=1) if end == "expired" else None
    made = make_admin_key(acme, expires_at=expires_at)
    if end == "revoked":
        services.revoke_key(key=made.key, actor=SOMEONE)
    if end == "suspended":
        services.suspend_key(key=made.key, actor=SOMEONE)

    ended = send(made.value, method, path, body)
    unknown = send("gwa_unknown", method, path, body)

    assert_error(ended, 401, "invalid_api_key")
    assert ended.error["message"] == unknown.error["message"]


@EVERY_ROUTE
def test_with_a_strangers_key(
    send: Any, rival: Organization, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    answer = send(make_admin_key(rival).value, method, path, body)

    if "{" in path:
        assert_error(answer, 404, "not_found")
    else:
        assert answer.status == allowed  # and sees its own alone, which each route's test shows


@EVERY_ROUTE
def test_with_a_session_cookie_alone(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    filled = path.format(project_id=project.pk, api_key_id=project.pk)

    assert_error(exchange(method, filled, [("Cookie", "sessionid=x; csrftoken=y")]), 401)
