"""A hundred clients send one creation at the same moment, to two processes."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from organization.models import AuditEvent, IdempotencyRecord, Project, ProjectKey
from tests.factories import make_admin_key
from tests.harness.live_server import LiveServer, live_server

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS = 100


def post(running: LiveServer, path: str, key: str, start: threading.Barrier) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.connect()
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Idempotency-Key": "parallel-0001",
    }
    start.wait()
    connection.request("POST", path, json.dumps({"name": "app"}), headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_parallel_creations_with_one_idempotency_key_make_one_key(
    process_environment: dict[str, str], project: Project
) -> None:
    key = make_admin_key(project.organization).value
    path = f"/v1/organization/projects/{project.pk}/api_keys"
    start = threading.Barrier(CLIENTS)
    with (
        live_server(process_environment, workers=2) as running,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        answers = list(pool.map(lambda _: post(running, path, key, start), range(CLIENTS)))

    assert ProjectKey.objects.count() == 1
    assert IdempotencyRecord.objects.count() == 1
    assert AuditEvent.objects.filter(action="project_key.create").count() == 1
    successes = {body for status, body in answers if status == 200}
    assert len(successes) == 1
    # A client that waited for the first for longer than the lock's time-out is told to try again.
    others = {(status, json.loads(body)["error"]["code"]) for status, body in answers if status != 200}
    assert others <= {(409, "creation_in_progress")}
