"""Fifty clients edit one policy at the same moment, in two processes."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest

from organization.models import AuditEvent, Organization
from tests.factories import make_admin_key
from tests.harness.live_server import LiveServer, live_server
from tests.policies.factories import make_published

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS = 50


def send(
    running: LiveServer, method: str, path: str, key: str, body: Any, start: threading.Barrier
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.connect()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    start.wait()
    connection.request(method, path, json.dumps(body), headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def test_one_of_parallel_edits_is_carried_out_and_the_others_conflict(
    process_environment: dict[str, str], acme: Organization
) -> None:
    key = make_admin_key(acme).value
    policy = make_published(acme)
    path = f"/v1/organization/policies/{policy.pk}"
    with live_server(process_environment, workers=2) as running, ThreadPoolExecutor(CLIENTS) as pool:

        def all_at_once(method: str, path: str, body: Any) -> list[tuple[int, Any]]:
            start = threading.Barrier(CLIENTS)
            futures = [
                pool.submit(send, running, method, path, key, {**body, **_own(method, number)}, start)
                for number in range(CLIENTS)
            ]
            return [future.result() for future in futures]

        edits = all_at_once("PATCH", path, {"revision": 2})
        pauses = all_at_once("POST", f"{path}/pause", {"revision": 3})

    for answers, revision, state in ((edits, 3, "enforcing"), (pauses, 4, "paused")):
        assert Counter(status for status, _ in answers) == {200: 1, 409: CLIENTS - 1}
        (winner,) = (body for status, body in answers if status == 200)
        assert (winner["revision"], winner["state"]) == (revision, state)
        codes = {body["error"]["code"] for status, body in answers if status == 409}
        assert codes == {"stale_revision"}
    policy.refresh_from_db()
    assert policy.name == next(body["name"] for status, body in edits if status == 200)
    assert policy.revision == 4
    assert AuditEvent.objects.filter(action__in=["policy.edit", "policy.pause"]).count() == 2


def _own(method: str, number: int) -> dict[str, Any]:
    return {"name": f"Client {number}"} if method == "PATCH" else {}
