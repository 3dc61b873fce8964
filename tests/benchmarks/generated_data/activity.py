"""Records of requests that nobody made, in an organization of their own, for measuring the console."""

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
from inference.models import Activity
from organization import services
from organization.audit.trail import Actor
from organization.models import Organization, ProjectKey
from tests.benchmarks.generated_data.requests import make_templates
from tests.benchmarks.generated_data.verdicts import GeneratedVerdicts

MAX_OPTIONS = {"requests": 200_000_000, "days": 3_650, "projects": 10_000, "keys": 20_000, "models": 100}
# Requests in one transaction: some seconds of writing.
BATCH = 100_000
# Of so many requests, about one was judged.
JUDGED_OF = 20

ACTOR = Actor.command("generate_activity")
TEMPLATES = "request_templates"
# The columns that a template decides; the others differ from request to request.
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


class GenerateActivity(OperatorCommand):
    help = (
        "Fill an organization of its own with the records of requests, for measuring the console. They are"
        " records alone: nothing is held or charged, and nobody was asked. The organization must be new."
    )

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="name; it is created")
        parser.add_argument("--requests", type=int, required=True, help=f"up to {MAX_OPTIONS['requests']:,}")
        parser.add_argument("--days", type=int, default=30, help="up to now (default: 30)")
        parser.add_argument("--projects", type=int, default=20)
        parser.add_argument("--keys", type=int, default=50, help="over all projects")
        parser.add_argument("--models", type=int, default=6)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument(
            "--verdicts", action="store_true", help=f"on about one in {JUDGED_OF}, by a policy"
        )

    def perform(self, **options: Any) -> dict[str, Any]:
        self._check_bounds(options)
        owner, requests = self._new_organization(options["organization"]), options["requests"]
        keys = self._make_keys(owner, options["projects"], options["keys"])
        templates = make_templates(keys, options["models"], random.Random(options["seed"]))
        verdicts = GeneratedVerdicts(owner, ACTOR) if options["verdicts"] else None
        generated = GeneratedRequests(templates, requests, options["days"])
        started = time.monotonic()
        for first in range(0, requests, BATCH):
            last = min(first + BATCH, requests) - 1
            generated.write(first, last)
            if verdicts:
                verdicts.write(generated.sample(first, last))
            self._report_progress(last + 1, requests, started)
        generated.close()
        return {
            "organization_id": str(owner.pk),
            "requests": requests,
            "verdicts": verdicts.count if verdicts else 0,
            "seconds": round(time.monotonic() - started, 1),
        }

    def _check_bounds(self, options: dict[str, Any]) -> None:
        for name, most in MAX_OPTIONS.items():
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

    def _report_progress(self, done: int, requests: int, started: float) -> None:
        self.stderr.write(f"{done:,} of {requests:,} requests, {done / (time.monotonic() - started):,.0f}/s")


class GeneratedRequests:
    """Requests evenly over the days, made in the database itself: it is some ten times as fast."""

    def __init__(self, templates: Sequence[Activity], requests: int, days: int) -> None:
        self._templates = templates
        start = datetime.now(UTC) - timedelta(days=days)
        self._figures = {
            "start_ms": int(start.timestamp() * 1000),
            "span_ms": days * 86_400_000,
            "requests": requests,
            "templates": len(templates),
        }
        self._words = WORDS[connection.vendor]
        self._make_table_of_templates()

    def write(self, first: int, last: int) -> None:
        """One transaction: whatever interrupts the command, the days are the sums of the rows."""
        figures = {**self._figures, "first": first, "last": last}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(self._rows_statement(), figures)
            cursor.execute(self._counts_statement(), figures)
            daily.add(self._gains(cursor.fetchall()))

    def sample(self, first: int, last: int) -> QuerySet[Activity, tuple[Any, ...]]:
        """Id, project and time of some of these requests."""
        figures = self._figures
        since, until = (
            datetime.fromtimestamp(
                (figures["start_ms"] + i * figures["span_ms"] // figures["requests"]) / 1000, UTC
            )
            for i in (first, last)
        )
        rows = Activity.objects.filter(
            organization=self._templates[0].organization_id, ended_at__gte=since, ended_at__lte=until
        )
        sampled = rows.annotate(remainder=F("total_ms") % JUDGED_OF).filter(remainder=0)
        return sampled.values_list("pk", "project_id", "ended_at")

    def close(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {TEMPLATES}")

    def _make_table_of_templates(self) -> None:
        quote = connection.ops.quote_name
        columns = [quote(str(field.column)) for field in DECIDED]
        types = [f"{name} {field.db_type(connection)}" for name, field in zip(columns, DECIDED, strict=True)]
        marks = ", ".join(["%s"] * (len(columns) + 1))
        rows = [
            [i, *(field.get_db_prep_save(getattr(template, field.attname), connection) for field in DECIDED)]
            for i, template in enumerate(self._templates)
        ]
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMPORARY TABLE {TEMPLATES} (template integer PRIMARY KEY, {', '.join(types)})"
            )
            cursor.executemany(f"INSERT INTO {TEMPLATES} VALUES ({marks})", rows)

    def _series(self) -> str:
        # Ids in order fill an index several times as fast as random ones. Their beginnings take every value.
        # The template is taken by a multiple of the golden ratio, which visits all of them in no order.
        return (
            f"SELECT i, %(start_ms)s + i * %(span_ms)s / %(requests)s AS ended_ms,"
            f" i * 4294967295 / %(requests)s AS id_prefix, {self._words['noise']} AS noise,"
            f" (i * 2654435761 %% 4294967296) * %(templates)s / 4294967296 AS template"
            f" FROM ({self._words['series']}) AS numbers"
        )

    def _rows_statement(self) -> str:
        quote, time_of = connection.ops.quote_name, self._words["time"].format
        columns = ", ".join(quote(str(field.column)) for field in DECIDED)
        return (
            f"INSERT INTO {Activity._meta.db_table} (id, created_at, ended_at, {columns})"
            f" SELECT {self._words['id'].format('id_prefix')}, {time_of('ended_ms - total_ms')},"
            f" {time_of('ended_ms')}, {columns}"
            f" FROM ({self._series()}) AS made JOIN {TEMPLATES} USING (template)"
        )

    def _counts_statement(self) -> str:
        return (
            f"SELECT ended_ms / 86400000, template, COUNT(*) FROM ({self._series()}) AS made"
            " GROUP BY ended_ms / 86400000, template"
        )

    def _gains(self, counts: Sequence[tuple[int, int, int]]) -> dict[Any, list[int]]:
        total: defaultdict[Any, list[int]] = defaultdict(lambda: [0] * len(daily.sums))
        for day, template, count in counts:
            row = self._templates[template]
            row.ended_at = _day(day)
            for cell, gain in gains_of([row]).items():
                total[cell] = [a + count * b for a, b in zip(total[cell], gain, strict=True)]
        return total


def _day(days_since_1970: int) -> datetime:
    return datetime.combine(date(1970, 1, 1) + timedelta(days=days_since_1970), datetime.min.time(), UTC)
