"""
A backend that attacks in every way it knows, all at once and again and again, while a neighbour asks another
backend of the same gateway: the neighbour is answered in time and with its own words, memory is bounded,
every request ends in good form, and the books balance.

The short form. The long one, which says what it measured:
HOSTILE_SECONDS=60 python -m pytest tests/e2e/attacks/test_hostile_backends.py -n 0 -s
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from billing.models import Reservation
from tests.e2e.attacks.helpers import SIZES
from tests.e2e.process_memory import megabytes
from tests.e2e.waiting import until
from tests.harness.live_server import UNLIMITED, LiveServer, live_server
from tests.inference.backends.upstreams.hostile.answers import ATTACKS
from tests.inference.backends.upstreams.hostile.server import hostile_upstream
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import ApiCustomer, question, records

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "5"))
ATTACKERS = 8
DEADLINE_SECONDS = 2
# For the neighbour, and for the end of an attacked request after its deadline: the machine does other things.
PATIENCE_SECONDS = 4
MAX_GROWTH_MEGABYTES = 250
SETTINGS = {**UNLIMITED, "GATEWAY_DEADLINE_SECONDS": str(DEADLINE_SECONDS)}

pytestmark = [
    pytest.mark.one_database,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc"),
]


class Customer:
    """Asks a server, one request after the other, and keeps how long each took."""

    def __init__(self, running: LiveServer, key: str) -> None:
        self._running = running
        self._key = key
        self.slowest = 0.0
        self.ends: Counter[str] = Counter()

    def ask(self, model: str, *, stream: bool) -> bytes:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        body = json.dumps(question(model, stream=stream, max_tokens=1000))
        started = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self._running.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.slowest = max(self.slowest, time.monotonic() - started)
        last = records(content)[-1] if stream and answer.status == 200 else json.loads(content)
        self.ends[_end_of(last)] += 1
        return content


def _end_of(last: Any) -> str:
    """The code of an error, or how a good answer ends; KeyError for what is neither."""
    if last == "[DONE]":
        return "answered"
    return (
        str(last["error"]["code"]) if "error" in last else str(last["choices"][0]["message"] and "answered")
    )


def test_a_neighbour_goes_on_while_a_backend_attacks(
    customer: ApiCustomer, process_environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with hostile_upstream() as url, live_server(process_environment, settings=SETTINGS) as running:
        # Of a known kind, so that its connections are kept and an answer could reach the wrong request.
        options = {"base_url": f"{url}/v1", "options": {"server": "openai"}}
        backend = make_backend("hostile", "openai", **options)
        for name in ATTACKS:
            deploy(make_model(name, **SIZES), backend, name)
        customer.simulate("echo")
        neighbour = Customer(running, customer.value)
        neighbour.ask("echo", stream=False)
        neighbour.slowest, before = 0.0, megabytes(running)
        attacked, peak = attack(running, customer.value, neighbour)
        until(lambda: not Reservation.objects.filter(state="held").exists(), 30)

    slowest = max(customer.slowest for customer in attacked)
    ends = sum((customer.ends for customer in attacked), Counter[str]())
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{ends.total()} attacks, slowest {slowest:.2f} s, {dict(ends)}; {neighbour.ends.total()} chats"
            f" of a neighbour, slowest {neighbour.slowest:.2f} s; memory {peak - before:+.0f} MB"
        )
    assert neighbour.slowest < PATIENCE_SECONDS
    assert set(neighbour.ends) == {"answered"}
    assert slowest < DEADLINE_SECONDS + PATIENCE_SECONDS
    assert set(ends) <= {"answered", "backend_failed", "deadline_exceeded", "provider_rejected"}
    assert peak - before < MAX_GROWTH_MEGABYTES
    assert Reservation.objects.count() == ends.total() + neighbour.ends.total()


def attack(running: LiveServer, key: str, neighbour: Customer) -> tuple[list[Customer], float]:
    """Those who were attacked, and the most memory that the server took meanwhile."""
    # An answer that comes after the next request was sent cannot be told from the answer to that. Who sends
    # it could as well have answered wrongly.
    names = [name for name in ATTACKS if name != "answers_again_later"]
    rounds = itertools.cycle(itertools.product(names, (True, False)))
    turn = threading.Lock()
    ends_at = time.monotonic() + SECONDS
    customers = [Customer(running, key) for _ in range(ATTACKERS)]

    def keep_asking(customer: Customer) -> None:
        while time.monotonic() < ends_at:
            with turn:
                name, stream = next(rounds)
            assert b"STOLEN" not in customer.ask(name, stream=stream), name

    peak = 0.0
    with ThreadPoolExecutor(ATTACKERS) as pool:
        asking = [pool.submit(keep_asking, customer) for customer in customers]
        for stream in itertools.cycle((True, False)):
            content = neighbour.ask("echo", stream=stream)
            assert b"hello" in content, content
            peak = max(peak, megabytes(running))
            if all(future.done() for future in asking):
                break
        for future in asking:
            future.result()
    return customers, peak
