"""
Processes that hold, heartbeat and settle, killed with -9 again and again; then the books are checked.

    python -m tests.billing.ledger.crash_loop --kills 200               # on SQLite
    python -m tests.billing.ledger.crash_loop --kills 200 --postgres    # on a PostgreSQL of its own

Half of the kills come from outside at a random instant; the others strike a process at a chosen point of
its own work. After every kill every invariant is checked, while the others go on; at the end the leases run
out, the sweeper sweeps, nothing may be left open but what is truly unknown, and every settlement that was
acknowledged must be there with the same charge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import selectors
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

PROCESSES = 4
TASKS = 5
HOLD = 100
POINTS = ["", "", "", "", "reserved", "dispatched", "first token", "last token", "settled"]


@dataclass
class Child:
    pid: int
    reports: int
    # What it wrote last and has not finished.
    rest: bytes = b""


@dataclass
class Report:
    kills: int = 0
    struck_at: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    swept: dict[str, int] = field(default_factory=dict)
    reservations: int = 0
    seconds: float = 0


def crash(kills: int, seed: int) -> Report:
    """Runs in a process that is nothing else: it forks, and so has no threads of its own."""
    from django.utils import timezone

    from billing.ledger.ledger import close_ledger
    from billing.ledger.sweeper import sweep
    from billing.models import Reservation
    from tests.billing.factories import make_customer
    from tests.harness.ledger_checks import assert_books_balance

    chance = random.Random(seed)
    started = time.monotonic()
    customer = make_customer(credit=10**12)
    customer.limit("key", "day", 10**12)
    customer.limit("organization", "total", 10**12)
    report = Report()
    acknowledged: dict[uuid.UUID, int] = {}
    children = [fork(customer, chance, report) for _ in range(PROCESSES)]
    while report.kills < kills:
        for i, child in enumerate(children):
            read_reports(child, acknowledged, seconds=chance.random() * 0.05)
            if is_killed := chance.random() < 0.3:
                os.kill(child.pid, signal.SIGKILL)
            # Whoever was not killed here may have come to its point.
            if os.waitpid(child.pid, 0 if is_killed else os.WNOHANG)[0]:
                read_reports(child, acknowledged, seconds=0)
                os.close(child.reports)
                report.kills += 1
                assert_books_balance()
                children[i] = fork(customer, chance, report)
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        read_reports(child, acknowledged, seconds=0)

    later = timezone.now() + timedelta(minutes=1)
    swept: Counter[str] = Counter()
    while (found := sweep(later)).total:
        swept.update({name: getattr(found, name) for name in ("released", "settled", "unknown")})
    close_ledger(5)
    assert_books_balance(later)
    assert not Reservation.objects.filter(state="held").exists()
    rows = Reservation.objects.in_bulk(list(acknowledged))
    for place, charged in acknowledged.items():
        assert rows[place].state == "settled", f"{place} was acknowledged and is {rows[place].state}"
        assert rows[place].charged_nanousd == charged
    report.acknowledged, report.swept = len(acknowledged), dict(swept)
    report.reservations = Reservation.objects.count()
    report.seconds = round(time.monotonic() - started, 1)
    return report


def fork(customer: Any, chance: random.Random, report: Report) -> Child:
    point = chance.choice(POINTS)
    report.struck_at[point or "outside"] += 1
    seed = chance.random()
    # A connection that two processes use is nobody's.
    close_connections()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader)
    try:
        os.close(reader)
        asyncio.run(Victim(customer, writer, point, random.Random(seed)).work())
    finally:
        os._exit(1)


def read_reports(child: Child, acknowledged: dict[uuid.UUID, int], seconds: float) -> None:
    """One line for each settlement that the ledger said was durable."""
    with selectors.DefaultSelector() as selector:
        selector.register(child.reports, selectors.EVENT_READ)
        while selector.select(seconds):
            data = os.read(child.reports, 65_536)
            if not data:
                return
            *lines, child.rest = (child.rest + data).split(b"\n")
            for line in lines:
                place, charged = line.decode().split()
                acknowledged[uuid.UUID(place)] = int(charged)
            seconds = 0


class Victim:
    """Serves requests as the gateway does, until it is killed or comes to its point."""

    def __init__(self, customer: Any, reports: int, point: str, chance: random.Random) -> None:
        from billing.ledger.ledger import get_ledger

        self.customer = customer
        self.reports = reports
        self.point = point
        self.chance = chance
        self.lives = chance.randint(1, 30)
        self.ledger = get_ledger()

    async def work(self) -> None:
        from billing.ledger.sweeper import Sweeper

        # As every process does: what the dead have left behind is for the living to find.
        Sweeper(every_seconds=0.2).start()
        await asyncio.gather(*(self._serve() for _ in range(TASKS)))

    async def _serve(self) -> None:
        while True:
            await self._request()

    async def _request(self) -> None:
        from billing.prices.price import Quantities

        is_dispatched = self.chance.random() < 0.5
        hold = await self.ledger.reserve(self.customer.request(HOLD, is_dispatched=is_dispatched))
        self._pass("reserved")
        if not is_dispatched:
            if self.chance.random() < 0.1:
                await self.ledger.release(hold)
                return
            await self.ledger.mark_dispatched(hold)
        self._pass("dispatched")
        tokens = 0
        for _ in range(self.chance.randint(0, 2)):
            tokens += self.chance.randint(1, 30)
            await self.ledger.heartbeat(hold, Quantities(prompt=10, completion=tokens))
            self._pass("first token")
        self._pass("last token")
        outcome = await self.ledger.settle(hold, Quantities(prompt=10, completion=tokens))
        self._pass("settled")
        os.write(self.reports, f"{hold.id} {outcome.charged_nanousd}\n".encode())

    def _pass(self, point: str) -> None:
        if point == self.point:
            self.lives -= 1
            if not self.lives:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--postgres", action="store_true", help="start one, instead of an SQLite file")
    parser.add_argument("--here", action="store_true", help="on the database of the environment, as tests do")
    options = parser.parse_args()
    if options.here:
        run(options)
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"GATEWAY_DATA_DIR": directory, "DJANGO_SETTINGS_MODULE": "gateway_site.settings"}
        if not options.postgres:
            run(options, migrate=True)
            return
        from cryptography.fernet import Fernet

        from tests.harness.postgres import PostgresServer

        with PostgresServer() as server:
            os.environ |= {"DATABASE_URL": server.url(), "SECRET_KEY": "s" * 64}
            os.environ |= {"ENCRYPTION_KEYS": Fernet.generate_key().decode(), "GATEWAY_KEY_PEPPERS": "p" * 32}
            run(options, migrate=True)


def run(options: argparse.Namespace, *, migrate: bool = False) -> None:
    import django

    os.environ |= {"GATEWAY_REQUESTS_PER_MINUTE": "0", "GATEWAY_CONCURRENCY": "0", "LOG_LEVEL": "ERROR"}
    django.setup()
    from django.core.management import call_command

    if migrate:
        call_command("migrate", verbosity=0)
    sys.stderr.write(f"seed {options.seed}\n")
    report = crash(options.kills, options.seed)
    sys.stdout.write(json.dumps(report.__dict__) + "\n")
    close_connections()


def close_connections() -> None:
    """This thread's, and those that wait in a pool."""
    from django.db import connections

    for connection in connections.all():
        connection.close()
        if connection.vendor == "postgresql":
            connection.close_pool()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
