"""One customer sends bodies made to be slow to read; another customer's small chats go on meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from billing.models import Reservation
from organization.models import Organization, Project
from tests.e2e.process_memory import megabytes
from tests.factories import make_admin_key
from tests.harness.live_server import LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

CHAT, RESPONSES, COUNT = "/v1/chat/completions", "/v1/responses", "/v1/messages/count_tokens"
POLICIES = "/v1/organization/policies"
# Nobody waits for a second; on a machine that is busy otherwise, no more than so many times as before.
MOST_SECONDS, MOST_TIMES = 1.0, 20


def many(unit: bytes, count: int) -> bytes:
    return b",".join([unit] * count)


def messages(content: bytes) -> bytes:
    return b'{"model":"echo","messages":[{"role":"user","content":' + content + b"}]}"


SAID = b'{"role":"user","content":"x"}'


def hostile() -> dict[str, tuple[str, bytes]]:
    """Bodies of less than 10 MiB and more than half a million values, with the routes they are sent to."""
    plain = messages(b'"x"')[:-1]
    objects, said = many(b"{}", 2_900_000), many(SAID, 330_000)
    tool = b'"tools":[{"type":"function","function":{"name":"f","parameters":{"x":[' + objects + b"]}}}]"
    biases = b'"logit_bias":{' + b",".join(b'"%d":1' % name for name in range(700_000)) + b"}"
    return {
        "a part of many objects": (CHAT, messages(b'[{"type":"a","x":[' + objects + b"]}]")),
        "many empty parts": (CHAT, messages(b"[" + many(b'{"type":"text","text":""}', 350_000) + b"]")),
        "a tool of many objects": (CHAT, plain + b"," + tool + b"}"),
        "many biases": (CHAT, plain + b"," + biases + b"}"),
        "many messages": (CHAT, b'{"model":"echo","messages":[' + said + b"]}"),
        "many items": (RESPONSES, b'{"model":"echo","input":[' + said + b"]}"),
        "many messages to count": (COUNT, b'{"model":"echo","messages":[' + said + b"]}"),
        "many names": (POLICIES, b"{" + b",".join(b'"%d":0' % name for name in range(900_000)) + b"}"),
    }


def post(running: LiveServer, path: str, key: str, body: bytes, seconds: float = 60) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=seconds)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, body, {**headers, "Idempotency-Key": "large-0001"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


class Innocent:
    """Asks one word after the other, and remembers how long each took."""

    def __init__(self, running: LiveServer, key: str) -> None:
        self._running, self._key = running, key
        self.waits: list[float] = []

    def ask(self) -> None:
        began = time.monotonic()
        status, answer = post(self._running, CHAT, self._key, json.dumps(question("echo", "hi")).encode())
        self.waits.append(time.monotonic() - began)
        assert status == 200, answer

    def worst_of(self, count: int) -> float:
        self.waits.clear()
        for _ in range(count):
            self.ask()
        return max(self.waits)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """All the while that something else is done, and once more after it has begun."""
        self.waits.clear()
        done = threading.Event()

        def go_on() -> None:
            while not done.is_set():
                self.ask()

        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(go_on)
            try:
                yield
            finally:
                done.set()
            asking.result()


@pytest.fixture
def rival_gateway(customer: ApiCustomer, rival_project: Project) -> ApiCustomer:
    customer.simulate("echo", context_length=10_000_000)
    return ApiCustomer.of(rival_project)


def test_hostile_bodies_are_refused_while_others_are_served(
    customer: ApiCustomer, rival_gateway: ApiCustomer, acme: Organization, process_environment: dict[str, str]
) -> None:
    admin = make_admin_key(acme).value
    with live_server(process_environment) as running:
        innocent = Innocent(running, rival_gateway.value)
        innocent.worst_of(5)
        before = innocent.worst_of(20)
        with innocent.asking():
            for name, (path, body) in hostile().items():
                status, answer = post(running, path, admin if path == POLICIES else customer.value, body)
                assert status == 400, (name, answer)
                assert "50000 JSON values" in answer["error"]["message"], (name, answer)
                assert "GATEWAY_MAX_BODY_NODES" in answer["error"]["message"]

    assert max(innocent.waits) < max(MOST_SECONDS, MOST_TIMES * before), (before, innocent.waits)
    assert not Reservation.objects.exclude(organization_id=rival_gateway.project.organization_id).exists()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
def test_memory_does_not_grow_with_refused_bodies(
    customer: ApiCustomer, rival_gateway: ApiCustomer, acme: Organization, process_environment: dict[str, str]
) -> None:
    admin = make_admin_key(acme).value
    named = (
        b"{" + b",".join(b'"%0150d":0' % n for n in range(45_000)) + b"}"
    )  # within the bound; no fields of ours
    bodies = hostile()
    parts = bodies["many empty parts"][1]
    sent = [(CHAT, customer.value, parts), (COUNT, customer.value, parts), (POLICIES, "nobody's", named)]
    sent += [(POLICIES, admin, named), (POLICIES, admin, bodies["many names"][1])]
    with live_server(process_environment) as running:
        seen = []
        for _ in range(5):
            statuses = [post(running, path, key, body)[0] for path, key, body in sent]
            assert statuses == [400, 400, 401, 400, 400]
            seen.append(megabytes(running))

    # Each round brings 45 MB.
    assert seen[-1] - seen[1] < 40, seen


def test_the_largest_bodies_of_one_customer_do_not_hold_up_another(
    customer: ApiCustomer, rival_gateway: ApiCustomer, process_environment: dict[str, str]
) -> None:
    """Within every bound, as many as come at once: whoever sends them waits for them, and nobody else."""
    largest = b'{"model":"echo","max_tokens":1,"messages":[' + many(SAID, 9_999) + b"]}"
    parts = b"[" + many(b'{"type":"text","text":"word"}', 9_999) + b"]"
    bodies = [largest, messages(parts)] * 4
    with live_server(process_environment) as running:
        innocent = Innocent(running, rival_gateway.value)
        innocent.worst_of(5)
        before = innocent.worst_of(20)
        with innocent.asking(), ThreadPoolExecutor(len(bodies)) as senders:
            answers = list(senders.map(lambda body: post(running, CHAT, customer.value, body), bodies))

    assert {status for status, _ in answers} == {200}, answers
    assert max(innocent.waits) < max(MOST_SECONDS, MOST_TIMES * before), (before, innocent.waits)
