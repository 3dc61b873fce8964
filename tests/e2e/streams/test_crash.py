"""
The server is killed with -9 under load, again and again; then the books are checked.

For longer: CHAT_KILLS=200 python -m pytest tests/e2e/streams/test_crash.py
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import aiohttp
from django.conf import settings
from django.utils import timezone

from billing.ledger.sweeper import sweep
from billing.models import Reservation
from billing.prices.bill import charge
from billing.prices.price import Quantities
from tests.harness.ledger_checks import assert_books_balance
from tests.harness.live_server import ROOT, free_port
from tests.inference.customer import ApiCustomer, question, records
from tests.inference.serving.expected_usage import PRICE

KILLS = int(os.environ.get("CHAT_KILLS", "12"))
CLIENTS = 20
MODELS = ("words", "echo", "paced-10x100")


@contextmanager
def crashing_server(environment: dict[str, str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.streams.crash_server", str(port)],
        cwd=ROOT,
        env={**environment, "DJANGO_SETTINGS_MODULE": "gateway_site.settings"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield port, process
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


class Crowd:
    """Clients that go on asking, whatever happens, and remember every answer that they had in full."""

    def __init__(self, address: str, key: str, seed: int) -> None:
        self.answers: dict[str, dict[str, int]] = {}
        self.broken = 0
        self.is_over = False
        self._url = f"{address}/v1/chat/completions"
        self._key = key
        self._chance = random.Random(seed)

    async def ask_on(self) -> None:
        # A connection each time: a killed server's connections are of no use.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        headers = {"Authorization": f"Bearer {self._key}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while not self.is_over:
                try:
                    await self._ask(session)
                except aiohttp.ClientError:
                    self.broken += 1

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        stream = self._chance.random() < 0.5
        fields: dict[str, Any] = {"stream": stream, "n": self._chance.choice([1, 1, 2])}
        if stream:
            fields["stream_options"] = {"include_usage": True}
        body = question(self._chance.choice(MODELS), **fields)
        async with session.post(self._url, json=body) as answer:
            content = await answer.read()
            assert answer.status == 200, content
            if not stream:
                usage = json.loads(content)["usage"]
            elif content.endswith(b"data: [DONE]\n\n"):
                usage = records(content)[-2]["usage"]
            else:
                return
            self.answers[answer.headers["x-request-id"]] = usage


async def crash(port: int, process: subprocess.Popen[str], crowd: Crowd) -> None:
    chance = random.Random(KILLS)
    assert process.stdout is not None
    child = int(await asyncio.to_thread(process.stdout.readline))
    clients = [asyncio.create_task(crowd.ask_on()) for _ in range(CLIENTS)]
    for _ in range(KILLS):
        before = len(crowd.answers)
        async with asyncio.timeout(30):
            while len(crowd.answers) < before + CLIENTS:  # noqa: ASYNC110 - until it is at work again
                await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() * 0.3)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        child = int(await asyncio.to_thread(process.stdout.readline))
    crowd.is_over = True
    await asyncio.gather(*clients)


def test_kill_9_loses_nothing(customer: ApiCustomer, process_environment: dict[str, str]) -> None:
    for name in MODELS:
        customer.simulate(name)
    unlimited = {"GATEWAY_REQUESTS_PER_MINUTE": "0", "GATEWAY_CONCURRENCY": "0"}
    with crashing_server({**process_environment, **unlimited}) as (port, process):
        crowd = Crowd(f"http://127.0.0.1:{port}", customer.value, seed=KILLS)
        asyncio.run(crash(port, process, crowd))

    assert crowd.broken >= KILLS
    later = timezone.now() + timedelta(seconds=settings.GATEWAY_LEASE_SECONDS + 10)
    sweep(later)
    assert_books_balance(later)
    assert not Reservation.objects.filter(state="held").exists()
    rows = Reservation.objects.in_bulk([uuid.UUID(identifier) for identifier in crowd.answers])
    for identifier, usage in crowd.answers.items():
        row = rows[uuid.UUID(identifier)]
        used = Quantities(prompt=usage["prompt_tokens"], completion=usage["completion_tokens"])
        assert (row.state, row.basis) == ("settled", "usage")
        assert row.charged_nanousd == charge(PRICE, used)
