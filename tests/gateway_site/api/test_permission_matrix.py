"""
The permission matrix: every route with every permission of both kinds of key, and every id of somebody else.

The short form tries each permission alone. For every set of permissions that a key can have:

    MATRIX=full python -m pytest tests/gateway_site/api/test_permission_matrix.py
"""

from __future__ import annotations

import base64
import itertools
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from billing.ledger.ledger import close_ledger
from inference.activity.writer import writer
from organization import services
from organization.models import AuditEvent, Project
from organization.permissions import ADMIN_PERMISSIONS, CUSTOMER_PERMISSIONS
from policies.enforcement.publication_cache import publications
from policies.services import create_policy, publish_policy
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.documented_routes import documented_routes
from tests.harness.error_checks import assert_error
from tests.harness.route_table import (
    ID_SLOTS,
    PUBLIC,
    ROUTES,
    THREADED,
    WRAPPED,
    documented_slots,
    served_routes,
)
from tests.inference.catalog.factories import make_served_model

IS_FULL = os.environ.get("MATRIX") == "full"
DAY = 86_400
COSTS = "/v1/organization/costs"


def committed(path: str) -> list[Any]:
    """Routes whose work is in other threads see only what is committed."""
    return [pytest.mark.django_db(transaction=True)] if path in THREADED else [pytest.mark.django_db]


EVERY_ROUTE = pytest.mark.parametrize(
    ("method", "path", "needed", "body", "allowed"),
    [pytest.param(*row, id=f"{row[0]} {row[1]}", marks=committed(row[1])) for row in ROUTES],
)
EVERY_SLOT = pytest.mark.parametrize(
    ("method", "path", "where", "name"),
    [
        pytest.param(*row, id=f"{row[0]} {row[1]} {row[2]} {row[3]}", marks=committed(row[1]))
        for row in ID_SLOTS
    ],
)
BODIES = {(method, path): body for method, path, _, body, _ in ROUTES}


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    writer.close(5)
    publications.close()
    close_ledger(5)


def is_for_customers(path: str) -> bool:
    return not path.startswith("/v1/organization/")


class Rows:
    """One of everything that a request can name, of one organization."""

    def __init__(self, project: Project) -> None:
        organization = project.organization
        self.project = project
        self.admin = ApiClient(make_admin_key(organization).value)
        self.customer_key = make_project_key(project)
        self.draft = create_policy(organization=organization, actor=SOMEONE, name="Draft", rule="Is it?")
        policy = create_policy(organization=organization, actor=SOMEONE, name="Policy", rule="Is it?")
        self.policy = publish_policy(policy=policy, actor=SOMEONE)
        self.path_ids = {
            "project_id": project.pk,
            "api_key_id": make_admin_key(organization).key.pk,
            "policy_id": self.draft.pk,
            "model": "simulator/echo",
        }

    def current(self, body: Any) -> Any:
        """The body, made from the latest revision of what it changes."""
        if not body or "revision" not in body:
            return body
        self.draft.refresh_from_db()
        return {**body, "revision": self.draft.revision}

    def id_for(self, name: str) -> str:
        if name == "page":
            since = int(time.time()) // DAY * DAY - 9 * DAY
            return str(self.admin.get(f"{COSTS}?start_time={since}&limit=1").json["next_page"])
        by_name = {
            "project_ids": self.project.pk,
            "api_key_ids": self.customer_key.key.pk,
            "policy_ids": self.policy.pk,
            "after": self.path_ids["api_key_id"],
            "previous_response_id": "resp_1",
        }
        return str(by_name[name] if name in by_name else self.path_ids[name])


@pytest.fixture
def ours(project: Project) -> Rows:
    make_served_model()
    return Rows(project)


@pytest.fixture
def theirs(rival_project: Project) -> Rows:
    return Rows(rival_project)


def test_every_route_that_is_served_has_its_row() -> None:
    assert served_routes() == PUBLIC | {(method, path) for method, path, *_ in ROUTES}


def test_every_row_is_a_route_of_the_document() -> None:
    documented = {(route.method, route.path, route.permission) for route in documented_routes()}

    assert {(method, path, permission) for method, path, permission, _, _ in ROUTES} == documented


def test_every_id_in_the_document_has_its_row() -> None:
    assert documented_slots(documented_routes()) == set(ID_SLOTS)


@pytest.mark.parametrize(("method", "path"), sorted(PUBLIC))
@pytest.mark.parametrize("credential", [[], [("Authorization", "Bearer garbage")]])
def test_what_is_for_everybody_asks_for_no_key(db: None, method: str, path: str, credential: Any) -> None:
    assert exchange(method, path, credential).status == 200


def sets_of(available: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Each alone; in the long form every set of them but the empty one, which no key has."""
    sizes = range(1, len(available) + 1) if IS_FULL else (1,)
    return [held for size in sizes for held in itertools.combinations(available, size)]


@EVERY_ROUTE
def test_every_permission_of_both_kinds_of_key(
    ours: Rows, method: str, path: str, needed: str, body: Any, allowed: int
) -> None:
    filled = path.format(**ours.path_ids)
    for kind, held, value in every_key(ours):
        before = AuditEvent.objects.count()
        answer = ApiClient(value).request(
            method, filled, ours.current(body), headers={"Idempotency-Key": f"matrix-{uuid.uuid4()}"}
        )
        is_its_kind = is_for_customers(path) == (kind == "customer")
        if is_its_kind and needed in held:
            assert answer.status == allowed, (kind, held, answer.body)
            continue
        code = "permission_denied" if is_its_kind else "wrong_key_kind"
        assert_error(answer, 403, code, wrapped=path == WRAPPED)
        assert AuditEvent.objects.count() == before, (kind, held)


def every_key(ours: Rows) -> list[tuple[str, tuple[str, ...], str]]:
    """One for each set of permissions, made before the first is used: it may archive the project."""
    organization, project = ours.project.organization, ours.project
    return [
        *(
            ("admin", held, make_admin_key(organization, permissions=list(held)).value)
            for held in sets_of(ADMIN_PERMISSIONS)
        ),
        *(
            ("customer", held, make_project_key(project, permissions=list(held)).value)
            for held in sets_of(CUSTOMER_PERMISSIONS)
        ),
    ]


@EVERY_ROUTE
def test_a_good_key_in_a_bad_place(
    ours: Rows, method: str, path: str, needed: str, body: Any, allowed: int
) -> None:
    filled = path.format(**ours.path_ids)
    admin, customer = str(ours.admin.key), ours.customer_key.value
    value = customer if is_for_customers(path) else admin
    basic = base64.b64encode(f"{value}:".encode()).decode()
    before = AuditEvent.objects.count()
    for credentials in (
        [("Authorization", f"Basic {basic}")],
        [("Authorization", value)],
        [("Authorization", f"Bearer {value}"), ("Authorization", f"Bearer {value}")],
        [("Authorization", f"Bearer {value}"), ("X-Api-Key", customer)],
        [("Cookie", f"Authorization=Bearer {value}")],
        [("Proxy-Authorization", f"Bearer {value}")],
        *([[("X-Api-Key", admin)]] if not is_for_customers(path) else []),
    ):
        assert_error(exchange(method, filled, credentials), 401, "invalid_api_key", wrapped=path == WRAPPED)
    assert_error(exchange(method, f"{filled}?api_key={value}"), 401, wrapped=path == WRAPPED)
    assert AuditEvent.objects.count() == before


# What an archived project still answers; its customer keys are let in nowhere that generates.
OF_AN_ARCHIVED_PROJECT = {
    "/v1/organization/projects/{project_id}/api_keys": (409, "project_archived"),
    "/v1/chat/completions": (403, "project_archived"),
    "/v1/responses": (403, "project_archived"),
    "/v1/messages/count_tokens": (403, "project_archived"),
}


@EVERY_ROUTE
def test_an_archived_project(
    ours: Rows, method: str, path: str, needed: str, body: Any, allowed: int
) -> None:
    services.archive_project(project=ours.project, actor=SOMEONE)
    value = ours.customer_key.value if is_for_customers(path) else ours.admin.key

    answer = ApiClient(value).request(
        method, path.format(**ours.path_ids), body, headers={"Idempotency-Key": "archived-1"}
    )

    if path in OF_AN_ARCHIVED_PROJECT:
        assert_error(answer, *OF_AN_ARCHIVED_PROJECT[path], wrapped=path == WRAPPED)
    else:
        assert answer.status == allowed


@EVERY_SLOT
def test_somebody_elses_id_is_answered_like_one_that_nobody_has(
    ours: Rows, theirs: Rows, method: str, path: str, where: str, name: str
) -> None:
    nobodys = str(uuid.uuid4())
    before = AuditEvent.objects.count()

    foreign, unknown = theirs.id_for(name), nobodys
    answers = [send_with(ours, method, path, where, name, value) for value in (foreign, unknown)]

    assert comparable(answers[0], foreign) == comparable(answers[1], unknown)
    assert 400 <= answers[0].status < 500
    assert AuditEvent.objects.count() == before
    if name != "previous_response_id":  # nothing is stored, so there is none of one's own
        own = send_with(ours, method, path, where, name, ours.id_for(name))
        assert own.status != answers[0].status, "the control: one's own is found"


def send_with(ours: Rows, method: str, path: str, where: str, name: str, value: str) -> Answer:
    """This route's request as it should be, with `value` where it names a row."""
    filled = path.format(**(ours.path_ids | ({name: value} if where == "path" else {})))
    body = dict(BODIES[method, path] or {}) or None
    if path == COSTS:
        filled += f"?start_time={int(time.time()) // DAY * DAY - 9 * DAY}&limit=1"
    if where == "query":
        filled += f"{'&' if '?' in filled else '?'}{name}={value}"
    if where == "body":
        body = {**(body or {}), name: [value] if name.endswith("s") else value}
    if name == "project_ids" and where == "body":
        body = {**(body or {}), "scope": "projects"}
    client = ApiClient(ours.customer_key.value) if is_for_customers(path) else ours.admin
    headers = {"Idempotency-Key": f"slots-{uuid.uuid4()}"}
    return client.request(method, filled, ours.current(body), headers=headers)


def comparable(answer: Answer, value: str) -> tuple[int, Any]:
    """All that a caller could tell two answers apart by."""
    error = {field: told for field, told in answer.error.items() if field != "request_id"}
    return answer.status, {field: str(told).replace(value, "ID") for field, told in error.items()}
