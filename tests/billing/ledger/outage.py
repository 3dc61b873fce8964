"""
A PostgreSQL that stops, crashes and comes back under a ledger at work. Run by `test_outages.py`, or

    python -m tests.billing.ledger.outage --crashes 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

from cryptography.fernet import Fernet

from tests.harness.postgres import PostgresServer

CALLERS = 20
# How many are charged between two crashes: each strikes a ledger at work.
CHARGED_BETWEEN_CRASHES = 20
RECOVERY_SECONDS = 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--crashes", type=int, default=20)
    crashes: int = parser.parse_args().crashes
    with PostgresServer() as server, tempfile.TemporaryDirectory() as directory:
        os.environ |= {
            "DATABASE_URL": server.url(),
            "SECRET_KEY": "s" * 64,
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "GATEWAY_KEY_PEPPERS": "p" * 32,
            "GATEWAY_DATA_DIR": directory,
            "GATEWAY_REQUESTS_PER_MINUTE": "0",
            "GATEWAY_CONCURRENCY": "0",
            "LOG_LEVEL": "CRITICAL",
            "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
        }
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        from django.db import connection

        from tests.billing.factories import make_customer

        customer = make_customer(credit=10**12)
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        report = asyncio.run(stop_and_start(server, customer))
        report |= asyncio.run(crash_under_load(server, customer, crashes))
        report["unsettled"] = settle_the_books(report.pop("acknowledged_charges"))
        sys.stdout.write(json.dumps(report) + "\n")
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]


async def stop_and_start(server: PostgresServer, customer: Any) -> dict[str, Any]:
    from billing.ledger.ledger import get_ledger
    from gateway_site.api.errors import Unavailable
    from tests.billing.factories import used

    ledger = get_ledger()
    hold = await ledger.reserve(customer.request(100))
    await asyncio.to_thread(server.stop)
    before = time.monotonic()
    refused = 0
    for _ in range(3):
        try:
            await ledger.reserve(customer.request(100))
        except Unavailable:
            refused += 1
    refused_in = (time.monotonic() - before) / 3
    settling = asyncio.create_task(ledger.settle(hold, used(40)))
    # It was tried in vain, and is kept.
    await until(lambda: bool(ledger.worker.thread.backlog))
    await asyncio.to_thread(server.start)
    before = time.monotonic()
    outcome = await settling
    settled_in = time.monotonic() - before
    before = time.monotonic()
    again = await ledger.reserve(customer.request(100))
    await ledger.release(again)
    return {
        "refused": refused,
        "refused_in": round(refused_in, 3),
        "settled": outcome.charged_nanousd,
        "settled_in": round(settled_in, 3),
        "admitted_in": round(time.monotonic() - before, 3),
    }


async def crash_under_load(server: PostgresServer, customer: Any, crashes: int) -> dict[str, Any]:
    from billing.ledger.ledger import get_ledger
    from gateway_site.api.errors import Unavailable
    from tests.billing.factories import used

    ledger = get_ledger()
    charges: dict[str, int] = {}
    is_over = asyncio.Event()
    pending: set[uuid.UUID] = set()

    async def caller() -> None:
        while not is_over.is_set():
            try:
                hold = await ledger.reserve(customer.request(100))
            except Unavailable:
                await asyncio.sleep(0.01)
                continue
            outcome = await ledger.settle(hold, used(7))
            # Not durable yet: it must land all the same, before the ledger is drained.
            (charges.__setitem__(str(hold.id), 7) if outcome.is_durable else pending.add(hold.id))

    callers = [asyncio.create_task(caller()) for _ in range(CALLERS)]
    for _ in range(crashes):
        await more_are_charged(charges)
        await asyncio.to_thread(server.restart, immediate=True)
    await more_are_charged(charges)
    is_over.set()
    await asyncio.gather(*callers)
    left = await ledger.drain(10)
    charges |= {str(place): 7 for place in pending}
    return {"acknowledged": len(charges), "left_undone": left, "acknowledged_charges": charges}


async def more_are_charged(charges: dict[str, int]) -> None:
    enough = len(charges) + CHARGED_BETWEEN_CRASHES
    await until(lambda: len(charges) >= enough)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(RECOVERY_SECONDS):
        while not is_so():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.001)


def settle_the_books(charges: dict[str, int]) -> int:
    from datetime import timedelta

    from django.utils import timezone

    from billing.ledger.ledger import close_ledger
    from billing.ledger.sweeper import sweep
    from billing.models import Reservation
    from tests.harness.ledger_checks import assert_books_balance

    later = timezone.now() + timedelta(minutes=1)
    while sweep(later).total:
        pass
    close_ledger(5)
    assert_books_balance(later)
    landed = dict(Reservation.objects.filter(state="settled").values_list("pk", "charged_nanousd"))
    return sum(1 for place, charged in charges.items() if landed.get(uuid.UUID(place)) != charged)


if __name__ == "__main__":
    main()
