"""A key is rotated while two servers remember its old value."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import pytest

from organization import services
from tests.factories import SOMEONE
from tests.harness.live_server import LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

pytestmark = pytest.mark.django_db(transaction=True)

ROTATIONS = 5


def ask(running: LiveServer, value: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=30)
    headers = {"Authorization": f"Bearer {value}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question("echo")), headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body["error"]["code"] if "error" in body else ""


def test_a_rotated_key_is_refused_by_both_processes_from_the_next_request_on(
    process_environment: dict[str, str], customer: ApiCustomer
) -> None:
    customer.simulate("echo")
    value = customer.value
    with live_server(process_environment) as one, live_server(process_environment) as other:
        for _ in range(ROTATIONS):
            assert [ask(server, value)[0] for server in (one, other)] == [200, 200]

            old, value = value, services.rotate_key(key=customer.key, actor=SOMEONE).value

            assert [ask(server, old) for server in (one, other)] == [(401, "invalid_api_key")] * 2
