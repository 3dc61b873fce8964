"""Another process keeps SQLite's file locked while requests come."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from django.db import connection

from organization.models import Project
from tests.factories import make_admin_key
from tests.harness.live_server import live_server
from tests.inference.customer import ApiCustomer, question

# For a machine that has other things to do.
WITHIN_SECONDS = 6.0


def test_what_must_write_is_refused_in_seconds_while_the_file_is_locked(
    customer: ApiCustomer, project: Project, process_environment: dict[str, str]
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has no file to lock")
    admin = make_admin_key(project.organization).value
    customer.simulate("simulator/echo")
    chat = question("simulator/echo")

    with live_server(process_environment) as server, ThreadPoolExecutor(3) as threads:

        def send(path: str, key: str, body: Any) -> tuple[int, float]:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            headers["Idempotency-Key"] = str(uuid.uuid4())
            data = json.dumps(body).encode()
            request = Request(server.address + path, data=data, headers=headers)  # noqa: S310
            began = time.monotonic()
            try:
                with urlopen(request, timeout=30) as reply:  # noqa: S310
                    status = reply.status
            except HTTPError as error:
                status = error.code
            return status, time.monotonic() - began

        def send_all() -> list[tuple[int, float]]:
            asked = [
                ("/v1/chat/completions", customer.value, chat),
                ("/v1/chat/completions", customer.value, {**chat, "stream": True}),
                (f"/v1/organization/projects/{project.pk}/api_keys", admin, {"name": "new"}),
            ]
            return [each.result() for each in [threads.submit(send, *each) for each in asked]]

        before = send_all()
        other = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        during = send_all()
        other.execute("ROLLBACK")
        other.close()
        after = send_all()

    assert [status for status, _ in before] == [200, 200, 200]
    assert [status for status, _ in during] == [503, 503, 503]
    assert max(seconds for _, seconds in during) < WITHIN_SECONDS
    assert [status for status, _ in after] == [200, 200, 200]
