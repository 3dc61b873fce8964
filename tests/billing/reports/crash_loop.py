"""
Roll-ups that are killed with -9, run three at a time, over and over, while requests settle.

It works on the database of the environment, in a process that has no threads to fork:

    python -m tests.billing.reports.crash_loop --kills 50
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from contextlib import nullcontext, suppress
from typing import Any

# Every run is delivered three times.
WORKERS = 3


def crash(kills: int, seed: int) -> dict[str, int]:
    from django.db.models import Sum

    from billing.models import CostLine, DailyCost, UnrolledCost
    from billing.reports.rollup import roll_up
    from tests.billing.factories import make_customer
    from tests.harness.ledger_checks import assert_books_balance

    chance = random.Random(seed)
    customer = make_customer(credit=10**12)
    keys = [customer, customer.another_key()]
    settle_some(keys, chance)
    workers = [fork(chance) for _ in range(WORKERS)]
    try:
        for _ in range(kills):
            settle_some(keys, chance)
            time.sleep(chance.random() * 0.03)
            kill(workers.pop(0))
            assert_books_balance()
            workers.append(fork(chance))
    finally:
        for worker in workers:
            kill(worker)
    moved = DailyCost.objects.aggregate(rows=Sum("lines"))["rows"] or 0
    until = time.monotonic() + 30
    # PostgreSQL may hold a dead client's rows for a moment.
    while UnrolledCost.objects.exists() and time.monotonic() < until:
        roll_up()
    assert not UnrolledCost.objects.exists()
    assert_books_balance()
    return {"kills": kills, "lines": CostLine.objects.count(), "moved_before_the_end": int(moved)}


def kill(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def close_connections() -> None:
    from django.db import connections

    for connection in connections.all():
        connection.close()
        if connection.vendor == "postgresql":
            connection.close_pool()  # type: ignore[attr-defined]


def settle_some(keys: list[Any], chance: random.Random) -> None:
    from tests.billing.settled_requests import Usage, after, settle

    for _ in range(4):
        usages = [Usage(chance.choice(keys), after(chance.randrange(3)), 5, 7) for _ in range(3)]
        settle(*usages)


def fork(chance: random.Random) -> int:
    """A worker that rolls up until it is killed: from outside at any instant, or between two statements."""
    strikes_itself, seed = chance.random() < 0.5, chance.random()
    # A connection that two processes use is nobody's.
    close_connections()
    pid = os.fork()
    if pid:
        return pid
    try:
        work(strikes_itself, random.Random(seed))
    finally:
        os._exit(1)


def work(strikes_itself: bool, chance: random.Random) -> None:
    from django.db import OperationalError, connection

    from billing.reports.rollup import roll_up

    def strike(execute: Any, *statement: Any) -> Any:
        result = execute(*statement)
        if chance.random() < 0.2:
            # What was taken or added is in the transaction, and nothing is committed.
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    with connection.execute_wrapper(strike) if strikes_itself else nullcontext():
        while True:
            # The rows of a worker that was killed a moment ago may still be locked.
            with suppress(OperationalError):
                roll_up(limit=chance.randint(1, 4))
            time.sleep(0.002)


def main() -> None:
    import django

    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    os.environ["LOG_LEVEL"] = "ERROR"
    django.setup()
    sys.stderr.write(f"seed {options.seed}\n")
    sys.stdout.write(json.dumps(crash(options.kills, options.seed)) + "\n")
    close_connections()


if __name__ == "__main__":
    main()
