from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connection, transaction
from django.db.models import F, QuerySet

from gateway_site.management.operator_command import OperatorCommand
from inference.activity.writer import daily, gains_of
from inference.made_up_requests import make_kinds
from inference.models import Activity
from organization import services
from organization.audit.trail import Actor
from organization.models import Organization, ProjectKey
from policies.made_up_verdicts import PolicyOfMadeUpVerdicts

MOST = {"requests": 200_000_000, "days": 3_650, "projects": 10_000, "keys": 20_000, "models": 100}
# Requests in one transaction: some seconds of writing.
BATCH = 100_000
# Of so many requests, about one was judged.
JUDGED_OF = 20

ACTOR = Actor.command("generate_activity")
KINDS = "made_up_requests"
# What a kind of request decides; the rest is different for each.
DECIDED = [
    field
    for field in Activity._meta.local_concrete_fields
    if field.name not in ("id", "created_at", "ended_at")
]

# Both databases' words for what differs: a number of milliseconds since 1970 as a time, and an id.
WORDS = {
    "postgresql": {
        "series": "SELECT i FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i",
        "time": "to_timestamp(({}) / 1000.0)",
        "id": (
            "(lpad(to_hex({}), 8, '0') || substr(noise, 1, 4) || '4' || substr(noise, 5, 3) || 'a' ||"
            " substr(noise, 8, 15))::uuid"
        ),
        "noise": "md5(random()::text)",
    },
    "sqlite": {
        "series": (
            "WITH RECURSIVE counted(i) AS (SELECT %(first)s UNION ALL SELECT i + 1 FROM counted"
            " WHERE i < %(last)s) SELECT i FROM counted"
        ),
        "time": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', ({}) / 1000.0, 'unixepoch')",
        "id": (
            "printf('%%08x', {}) || substr(noise, 1, 4) || '4' || substr(noise, 5, 3) || 'a' ||"
            " substr(noise, 8, 15)"
        ),
        "noise": "lower(hex(randomblob(16)))",
    },
}


class Command(OperatorCommand):
    help = (
        "Fill an organization of its own with the records of requests, for measuring the console. They are"
        " records alone: nothing is held or charged, and nobody was asked. The organization must be new."
    )

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="name; it is created")
        parser.add_argument("--requests", type=int, required=True, help=f"up to {MOST['requests']:,}")
        parser.add_argument("--days", type=int, default=30, help="up to now (default: 30)")
        parser.add_argument("--projects", type=int, default=20)
        parser.add_argument("--keys", type=int, default=50, help="over all projects")
        parser.add_argument("--models", type=int, default=6)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument(
            "--verdicts", action="store_true", help=f"on about one in {JUDGED_OF}, by a policy"
        )

    def perform(
        self, *, organization: str, requests: int, days: int, seed: int, verdicts: bool, **options: Any
    ) -> dict[str, Any]:
        self._check_bounds({"requests": requests, "days": days, **options})
        owner = self._new_organization(organization)
        keys = self._make_keys(owner, options["projects"], options["keys"])
        kinds = make_kinds(keys, options["models"], random.Random(seed))
        policy = PolicyOfMadeUpVerdicts(owner, ACTOR) if verdicts else None
        generated = Generated(kinds, requests, days)
        started = time.monotonic()
        for first in range(0, requests, BATCH):
            last = min(first + BATCH, requests) - 1
            generated.write(first, last)
            if policy:
                policy.judge(generated.some(first, last))
            self._tell(last + 1, requests, started)
        generated.close()
        return {
            "organization_id": str(owner.pk),
            "requests": requests,
            "verdicts": policy.count if policy else 0,
            "seconds": round(time.monotonic() - started, 1),
        }

    def _check_bounds(self, options: dict[str, Any]) -> None:
        for name, most in MOST.items():
            if not 1 <= options[name] <= most:
                raise CommandError(f"--{name} must be from 1 to {most:,}.")

    def _new_organization(self, name: str) -> Organization:
        owner, is_new = services.create_organization(name=name, actor=ACTOR)
        if not is_new:
            raise CommandError(f"There is {name!r} already; name a new organization.")
        return owner

    def _make_keys(self, owner: Organization, projects: int, count: int) -> list[ProjectKey]:
        made = [
            services.create_project(organization=owner, name=f"Project {i + 1}", actor=ACTOR)[0]
            for i in range(projects)
        ]
        # Nobody learns their values, so nobody can use them.
        return [
            services.create_project_key(project=made[i % projects], name=f"Key {i + 1}", actor=ACTOR).key
            for i in range(count)
        ]

    def _tell(self, done: int, requests: int, started: float) -> None:
        self.stderr.write(f"{done:,} of {requests:,} requests, {done / (time.monotonic() - started):,.0f}/s")


class Generated:
    """Requests evenly over the days, made in the database itself: it is some ten times as fast."""

    def __init__(self, kinds: Sequence[Activity], requests: int, days: int) -> None:
        self._kinds = kinds
        start = datetime.now(UTC) - timedelta(days=days)
        self._figures = {
            "start_ms": int(start.timestamp() * 1000),
            "span_ms": days * 86_400_000,
            "requests": requests,
            "kinds": len(kinds),
        }
        self._words = WORDS[connection.vendor]
        self._make_table_of_kinds()

    def write(self, first: int, last: int) -> None:
        """One transaction: whatever interrupts the command, the days are the sums of the rows."""
        figures = {**self._figures, "first": first, "last": last}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(self._rows_statement(), figures)
            cursor.execute(self._counts_statement(), figures)
            daily.add(self._gains(cursor.fetchall()))

    def some(self, first: int, last: int) -> QuerySet[Activity, tuple[Any, ...]]:
        """Some of these requests: id, project and time."""
        figures = self._figures
        since, until = (
            datetime.fromtimestamp(
                (figures["start_ms"] + i * figures["span_ms"] // figures["requests"]) / 1000, UTC
            )
            for i in (first, last)
        )
        rows = Activity.objects.filter(
            organization=self._kinds[0].organization_id, ended_at__gte=since, ended_at__lte=until
        )
        some = rows.annotate(rest=F("total_ms") % JUDGED_OF).filter(rest=0)
        return some.values_list("pk", "project_id", "ended_at")

    def close(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {KINDS}")

    def _make_table_of_kinds(self) -> None:
        quote = connection.ops.quote_name
        columns = [quote(str(field.column)) for field in DECIDED]
        types = [f"{name} {field.db_type(connection)}" for name, field in zip(columns, DECIDED, strict=True)]
        marks = ", ".join(["%s"] * (len(columns) + 1))
        rows = [
            [i, *(field.get_db_prep_save(getattr(kind, field.attname), connection) for field in DECIDED)]
            for i, kind in enumerate(self._kinds)
        ]
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMPORARY TABLE {KINDS} (kind integer PRIMARY KEY, {', '.join(types)})")
            cursor.executemany(f"INSERT INTO {KINDS} VALUES ({marks})", rows)  # noqa: S608

    def _series(self) -> str:
        # Ids in order fill an index several times as fast as random ones would; theirs begin everywhere.
        # The kind is taken by a multiple of the golden ratio, which visits all of them in no order.
        return (
            f"SELECT i, %(start_ms)s + i * %(span_ms)s / %(requests)s AS ended_ms,"  # noqa: S608
            f" i * 4294967295 / %(requests)s AS place, {self._words['noise']} AS noise,"
            f" (i * 2654435761 %% 4294967296) * %(kinds)s / 4294967296 AS kind"
            f" FROM ({self._words['series']}) AS numbers"
        )

    def _rows_statement(self) -> str:
        quote, time_of = connection.ops.quote_name, self._words["time"].format
        columns = ", ".join(quote(str(field.column)) for field in DECIDED)
        return (
            f"INSERT INTO {Activity._meta.db_table} (id, created_at, ended_at, {columns})"  # noqa: S608
            f" SELECT {self._words['id'].format('place')}, {time_of('ended_ms - total_ms')},"
            f" {time_of('ended_ms')}, {columns}"
            f" FROM ({self._series()}) AS made JOIN {KINDS} USING (kind)"
        )

    def _counts_statement(self) -> str:
        return (
            f"SELECT ended_ms / 86400000, kind, COUNT(*) FROM ({self._series()}) AS made"  # noqa: S608
            " GROUP BY ended_ms / 86400000, kind"
        )

    def _gains(self, counts: Sequence[tuple[int, int, int]]) -> dict[Any, list[int]]:
        total: defaultdict[Any, list[int]] = defaultdict(lambda: [0] * len(daily.sums))
        for day, kind, count in counts:
            row = self._kinds[kind]
            row.ended_at = _day(day)
            for cell, gain in gains_of([row], times=count).items():
                total[cell] = [a + b for a, b in zip(total[cell], gain, strict=True)]
        return total


def _day(days_since_1970: int) -> datetime:
    return datetime.combine(date(1970, 1, 1) + timedelta(days=days_since_1970), datetime.min.time(), UTC)
