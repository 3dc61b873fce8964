"""
The cost report over many cost lines: its time grows with days and groups, and not with requests, but for a
first or last day that is not whole.

    python -m tests.benchmarks.cost_report [--lines 10000000] [--runs 15] [--database both|sqlite|postgres]

Two organizations in one database, the same in days, keys and models; one has a hundredth of the other's
lines. Every figure is a whole request through the ASGI application. PostgreSQL and SQLite flush every commit.
Ten million lines take several gigabytes of disk and some five minutes to make, on each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from io import StringIO

from tests.benchmarks.environment import postgres_environment, say, sqlite_environment
from tests.harness.postgres import PostgresServer

DAY_SECONDS = 86_400
DAYS = 180
FEWER = 100
GROUPS = "project_id,api_key_id,line_item"
SHAPES = [
    (7, ""),
    (30, ""),
    (180, ""),
    (180, "project_id"),
    (180, "line_item"),
    (180, "api_key_id"),
    (7, GROUPS),
    (30, GROUPS),
    (90, GROUPS),
    (180, GROUPS),
]
# Hours after a midnight, and how many: what is not whole days is read from lines.
PARTS_OF_DAYS = [(12, 1), (0, 12), (6, 12), (1, 22), (12, 24 * 30), (12, 24 * 180 - 24)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=15, help="of each request; the median is shown")
    parser.add_argument("--database", choices=["both", "sqlite", "postgres"], default="both")
    parser.add_argument("--here", action="store_true", help="on the database of the environment")
    options = parser.parse_args()
    if options.here:
        measure_here(options)
        return
    command = [sys.executable, "-m", "tests.benchmarks.cost_report", "--here"]
    command += ["--lines", str(options.lines), "--runs", str(options.runs)]
    with tempfile.TemporaryDirectory() as directory:
        environment = {**sqlite_environment(directory), "GATEWAY_ADMIN_REQUESTS_PER_MINUTE": "1000000"}
        if options.database != "postgres":
            subprocess.run(command, env=environment, check=True)
        if options.database != "sqlite":
            # As an operator would size it for such an amount; the default is a fraction of this machine.
            with PostgresServer(fsync=True, settings={"max_wal_size": "4GB"}) as server:
                subprocess.run(command, env=environment | postgres_environment(server), check=True)


def measure_here(options: argparse.Namespace) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    say(f"{connection.vendor}: milliseconds a page, the best, median and worst of {options.runs}; results")
    small = load("Small", options.lines // FEWER)
    large = load("Large", options.lines)
    say(f"{'not rolled up':42}" + "".join(figure(key, 180, GROUPS, options.runs) for key in (small, large)))
    started = time.monotonic()
    call_command("rollup_costs", stdout=StringIO())
    say(f"rolled up in {time.monotonic() - started:.1f} s")
    with connection.cursor() as cursor:
        # As PostgreSQL does by itself within minutes.
        cursor.execute("VACUUM (ANALYZE)" if connection.vendor == "postgresql" else "ANALYZE")
    for days, groups in SHAPES:
        name = f"{days} days by {groups or 'nothing'}"
        say(f"{name:42}" + "".join(figure(key, days, groups, options.runs) for key in (small, large)))
    for after, hours in PARTS_OF_DAYS:
        name = f"{hours} hours from {after}:00 by all"
        keys = (small, large)
        say(f"{name:42}" + "".join(figure_of_hours(key, after, hours, options.runs) for key in keys))
    connection.close()
    if connection.vendor == "postgresql":
        connection.close_pool()  # type: ignore[attr-defined]


def load(name: str, lines: int) -> str:
    """An organization with so many cost lines, and the value of a key that may read them."""
    from django.core.management import call_command

    from organization import services
    from organization.audit.trail import Actor
    from organization.models import Organization
    from tests.benchmarks.generated_data.costs import GenerateCosts

    out = StringIO()
    options = {"lines": lines, "days": DAYS, "stdout": out, "stderr": StringIO()}
    call_command(GenerateCosts(), name, "--json", "--unrolled", **options)
    made = json.loads(out.getvalue())
    say(f"{name}: {made['lines']:,} lines made in {made['seconds']} s, ${made['charged_usd']}")
    owner = Organization.objects.get(pk=made["organization_id"])
    actor = Actor.command("benchmark")
    return services.create_admin_key(organization=owner, name="benchmark", actor=actor).value


def figure(key: str, days: int, groups: str, runs: int) -> str:
    """The times of a report of the last whole days."""
    start = (int(time.time()) // DAY_SECONDS - days) * DAY_SECONDS
    return measured(key, start, start + days * DAY_SECONDS, groups, runs)


def figure_of_hours(key: str, after: int, hours: int, runs: int) -> str:
    """The times of a report that begins so many hours after the midnight that its last day allows."""
    days = -(-(after + hours) // 24)
    start = (int(time.time()) // DAY_SECONDS - days) * DAY_SECONDS + after * 3600
    return measured(key, start, start + hours * 3600, GROUPS, runs)


def measured(key: str, start: int, end: int, groups: str, runs: int) -> str:
    from tests.harness.client import ApiClient

    target = f"/v1/organization/costs?start_time={start}&end_time={end}&limit=180"
    target += f"&group_by={groups}" if groups else ""
    client = ApiClient(key)
    took = []
    for _ in range(runs):
        started = time.perf_counter()
        answer = client.get(target)
        took.append((time.perf_counter() - started) * 1000)
        assert answer.status == 200, answer.body
    results = sum(len(bucket["results"]) for bucket in answer.json["data"])
    times = f"{min(took):6.0f} {statistics.median(took):6.0f} {max(took):6.0f}"
    return f"{times} {results:8,} |"


if __name__ == "__main__":
    main()
