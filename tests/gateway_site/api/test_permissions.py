"""Every route, with every kind of credential."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.ledger.ledger import close_ledger
from inference.activity.writer import writer
from organization import services
from organization.models import Organization, Project
from organization.permissions import ADMIN_PERMISSIONS, CUSTOMER_PERMISSIONS
from organization.services import NewKey
from policies.enforcement.publication_cache import publications
from policies.services import create_policy
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.error_checks import assert_error
from tests.harness.route_table import ROUTES, THREADED, WRAPPED
from tests.inference.catalog.factories import make_served_model

EVERY_ROUTE = pytest.mark.parametrize(
    ("method", "path", "permission", "body", "allowed"),
    [
        pytest.param(
            *row,
            id=f"{row[0]} {row[1]}",
            marks=[pytest.mark.django_db(transaction=True)] if row[1] in THREADED else [],
        )
        for row in ROUTES
    ],
)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    writer.close(5)
    publications.close()
    close_ledger(5)


def is_for_customers(path: str) -> bool:
    return not path.startswith("/v1/organization/")


def make_key(path: str, project: Project, **options: Any) -> NewKey[Any]:
    """A key of the kind that this path is for."""
    if is_for_customers(path):
        return make_project_key(project, **options)
    return make_admin_key(project.organization, **options)


@pytest.fixture
def send(project: Project, acme: Organization) -> Any:
    target = make_admin_key(acme)
    model = make_served_model()
    policy = create_policy(organization=acme, actor=SOMEONE, name="Policy", rule="Is it?")

    def send(value: str | None, method: str, path: str, body: Any) -> Answer:
        filled = path.format(
            project_id=project.pk, api_key_id=target.key.pk, model=model.pk, policy_id=policy.pk
        )
        return ApiClient(value).request(method, filled, body, headers={"Idempotency-Key": "routes-0001"})

    return send


@EVERY_ROUTE
def test_with_exactly_its_permission(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    key = make_key(path, project, permissions=[permission])

    assert send(key.value, method, path, body).status == allowed


@EVERY_ROUTE
def test_without_its_permission(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    available = CUSTOMER_PERMISSIONS if is_for_customers(path) else ADMIN_PERMISSIONS
    key = make_key(path, project, permissions=[each for each in available if each != permission])

    answer = send(key.value, method, path, body)

    assert_error(answer, 403, "permission_denied", wrapped=path == WRAPPED)
    assert permission in answer.error["message"]


@EVERY_ROUTE
def test_with_no_key(send: Any, method: str, path: str, permission: str, body: Any, allowed: int) -> None:
    answer = send(None, method, path, body)

    assert_error(answer, 401, "invalid_api_key", wrapped=path == WRAPPED)
    assert answer.headers["www-authenticate"] == "Bearer"


@EVERY_ROUTE
@pytest.mark.parametrize("value", ["garbage", "gwa_" + "x" * 49, "' OR 1=1 --", ""])
def test_with_garbage(
    send: Any, method: str, path: str, permission: str, body: Any, allowed: int, value: str
) -> None:
    assert_error(send(value, method, path, body), 401, "invalid_api_key", wrapped=path == WRAPPED)


@EVERY_ROUTE
def test_with_a_key_of_the_other_kind(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    other = make_admin_key(project.organization) if is_for_customers(path) else make_project_key(project)

    assert_error(send(other.value, method, path, body), 403, "wrong_key_kind", wrapped=path == WRAPPED)


@EVERY_ROUTE
@pytest.mark.parametrize("end", ["revoked", "suspended", "expired"])
def test_with_a_key_that_has_ended(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int, end: str
) -> None:
    expires_at = timezone.now() - timedelta(seconds=1) if end == "expired" else None
    made = make_key(path, project, expires_at=expires_at)
    if end == "revoked":
        services.revoke_key(key=made.key, actor=SOMEONE)
    if end == "suspended":
        services.suspend_key(key=made.key, actor=SOMEONE)

    ended = send(made.value, method, path, body)
    unknown = send("gwa_unknown", method, path, body)

    assert_error(ended, 401, "invalid_api_key", wrapped=path == WRAPPED)
    assert ended.error["message"] == unknown.error["message"]


@EVERY_ROUTE
def test_with_a_strangers_key(
    send: Any, rival_project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    answer = send(make_key(path, rival_project).value, method, path, body)

    if "{" in path and not is_for_customers(path):  # the catalog is everyone's
        assert_error(answer, 404, "not_found")
    else:
        assert answer.status == allowed  # and sees its own alone, which each route's test shows


@EVERY_ROUTE
def test_with_a_session_cookie_alone(
    send: Any, project: Project, method: str, path: str, permission: str, body: Any, allowed: int
) -> None:
    filled = path.format(project_id=project.pk, api_key_id=project.pk, model="m", policy_id=project.pk)

    answer = exchange(method, filled, [("Cookie", "sessionid=x; csrftoken=y")])

    assert_error(answer, 401, wrapped=path == WRAPPED)
