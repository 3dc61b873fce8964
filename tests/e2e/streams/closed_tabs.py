"""
Tabs closed at random moments of a stream, on a model added with no option; then the books are checked.

    python -m tests.e2e.streams.closed_tabs --closes 500               # on SQLite
    python -m tests.e2e.streams.closed_tabs --closes 500 --postgres    # on a PostgreSQL of its own

It prints what is held a minute later at most, what was charged, what the backend emitted, and their ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time

from tests.benchmarks.environment import postgres_environment, say, sqlite_environment
from tests.harness.postgres import PostgresServer

# How far what is charged may be from what was emitted: words are on their way when a tab is closed.
TOLERANCE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--closes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--postgres", action="store_true", help="start one, instead of an SQLite file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        os.environ |= sqlite_environment(directory)
        if options.postgres:
            os.environ |= postgres_environment(stack.enter_context(PostgresServer()))
        run(options.closes, options.seed)


def run(closes: int, seed: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)

    from organization import services
    from tests.e2e.streams.tab_closing import close_tabs
    from tests.factories import SOMEONE
    from tests.harness.ledger_checks import assert_books_balance
    from tests.inference.customer import ApiCustomer

    organization, _ = services.create_organization(name="Acme", actor=SOMEONE)
    project, _ = services.create_project(organization=organization, name="Web", actor=SOMEONE)
    found = close_tabs(dict(os.environ), ApiCustomer.of(project), closes, seed)
    say(f"seed {seed}, {found.closes} closes, {found.requests_upstream} reached the backend")
    say(f"held     {found.held_nanousd} nano-USD, {found.seconds_until_nothing_held} s after the last close")
    say(f"charged  {found.charged_nanousd} nano-USD")
    say(f"emitted  {found.emitted_nanousd} nano-USD: {found.tokens_emitted} tokens and the prompts")
    say(f"ratio    {found.ratio:.4f}")
    for outcome, count in found.outcomes.items():
        say(f"{count:8} {outcome}")
    assert_books_balance()
    say("the books balance")
    connections.close_all()
    if found.held_nanousd or abs(1 - found.ratio) > TOLERANCE:
        raise SystemExit("too much is held, or too little was charged")


if __name__ == "__main__":
    main()
