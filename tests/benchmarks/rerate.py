"""
A correction of many requests: its time, and that it leaves what a fresh run at the right price leaves.

    python -m tests.benchmarks.rerate [--requests 10000] [--database both|sqlite|postgres]

Two organizations make the same requests, one by a wrong card and one by the right one. Then the period is
rated again, twice. Balances, daily sums, caps and lines of requests must be equal, and the second run
must change nothing. It is the long form of `tests/billing/corrections/test_rerate.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from tests.benchmarks.environment import postgres_environment, say, sqlite_environment
from tests.harness.postgres import PostgresServer

Measured = TypeVar("Measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--database", choices=["both", "sqlite", "postgres"], default="both")
    parser.add_argument("--here", action="store_true", help="on the database of the environment")
    options = parser.parse_args()
    if options.here:
        measure_here(options.requests)
        return
    command = [sys.executable, "-m", "tests.benchmarks.rerate", "--here", "--requests", str(options.requests)]
    with tempfile.TemporaryDirectory() as directory:
        environment = sqlite_environment(directory)
        if options.database != "postgres":
            subprocess.run(command, env=environment, check=True)
        if options.database != "sqlite":
            with PostgresServer(fsync=True) as server:
                subprocess.run(command, env=environment | postgres_environment(server), check=True)


def measure_here(count: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    say(f"{connection.vendor}: {count:,} requests of each of two organizations")
    compare(count)
    connection.close()
    if connection.vendor == "postgresql":
        connection.close_pool()  # type: ignore[attr-defined]


def compare(count: int) -> None:
    """Make the requests, correct one organization's, and stop at the first difference."""
    from billing.corrections.rerate import rerate
    from billing.models import CostAdjustment
    from billing.reports.rollup import roll_up
    from tests.billing.corrections.priced_requests import (
        RIGHT,
        WRONG,
        add_card,
        books_of,
        many_requests,
        scope_of,
        settle_at,
        with_two_keys,
    )
    from tests.billing.factories import SOMEONE, make_customer
    from tests.harness.ledger_checks import assert_books_balance

    wronged, fresh = (with_two_keys(make_customer(credit=10**18)) for _ in range(2))
    made = many_requests(count, at_once=50)
    ids = timed("made at the wrong price", lambda: settle_at(wronged, add_card(WRONG), *made))
    roll_up()
    theirs = timed("made at the right price", lambda: settle_at(fresh, add_card(RIGHT), *made))
    expected = books_of(fresh, theirs)
    dry = timed("dry run", lambda: rerate(scope_of(), actor=SOMEONE, is_dry_run=True))
    first = timed("first run", lambda: rerate(scope_of(), actor=SOMEONE))
    assert first.changed == dry.changed == CostAdjustment.objects.count() == count
    assert books_of(wronged, ids) == expected
    second = timed("second run", lambda: rerate(scope_of(), actor=SOMEONE))
    assert second.changed == 0
    roll_up()
    assert books_of(wronged, ids) == expected
    timed("audit", assert_books_balance)
    say("rated twice = rated once = a fresh run at the right price")


def timed(name: str, work: Callable[[], Measured]) -> Measured:
    started, processor = time.monotonic(), time.process_time()
    result = work()
    took, used = time.monotonic() - started, time.process_time() - processor
    say(f"  {name:26} {took:6.1f} s, of which {used:5.1f} s of this process's processor time")
    return result


if __name__ == "__main__":
    main()
