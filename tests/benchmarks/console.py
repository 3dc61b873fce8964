"""
Every page of the console over many requests: none may take 300 ms.

    python -m tests.benchmarks.console [--requests 10000000] [--lines 1000000] [--postgres | --sqlite]

Each figure is the median of several, through Django's test client, so with everything but the network. Beside
it is the processor time that this process and its database session took, which tells a slow page from a busy
machine. Ten million requests take some six gigabytes of disk and ten minutes to make, on each database.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from tests.benchmarks.environment import postgres_environment, say, sqlite_environment
from tests.harness.postgres import PostgresServer

LIMIT_MS = 300
REQUESTS, COSTS = "Made-up requests", "Made-up costs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=7, help="of each page; the median is shown")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL alone")
    parser.add_argument("--sqlite", action="store_true", help="on SQLite alone")
    parser.add_argument("--here", action="store_true", help="on the database of the environment")
    options = parser.parse_args()
    if options.here:
        sys.exit(measure_here(options))
    command = [sys.executable, "-m", "tests.benchmarks.console", "--here", f"--runs={options.runs}"]
    command += [f"--requests={options.requests}", f"--lines={options.lines}"]
    results = []
    with tempfile.TemporaryDirectory() as directory:
        environment = sqlite_environment(directory)
        if not options.postgres:
            results.append(subprocess.run(command, env=environment, check=False).returncode)
        if not options.sqlite:
            # As an operator would size it for such an amount; the default is a fraction of this machine.
            with PostgresServer(fsync=True, settings={"max_wal_size": "4GB"}) as server:
                there = environment | postgres_environment(server)
                results.append(subprocess.run(command, env=there, check=False).returncode)
    sys.exit(max(results))


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    address: str


def measure_here(options: argparse.Namespace) -> int:
    """0 if no page was too slow."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    load(options.requests, options.lines)
    say(f"{connection.vendor}: {'page':60} {'first':>8} {'median':>8} {'processor':>9} {'queries':>8}")
    slow = 0
    client = signed_in()
    for page in pages():
        seen = figures(client, page, options.runs)
        slow += seen.median_ms >= LIMIT_MS
        say(f"{connection.vendor}: {page.name:60.60} {seen}")
    connection.close()
    if connection.vendor == "postgresql":
        connection.close_pool()  # type: ignore[attr-defined]
    say(f"{connection.vendor}: {slow} pages too slow")
    return 1 if slow else 0


def load(requests: int, lines: int, *, projects: int = 200, keys: int = 400) -> None:
    """Organizations with so many requests and so many cost lines, unless they are there already."""
    from django.core.management import call_command
    from django.db import connection

    from organization.models import Organization
    from tests.benchmarks.generated_data.activity import GenerateActivity
    from tests.benchmarks.generated_data.costs import GenerateCosts

    if not Organization.objects.filter(name=REQUESTS).exists():
        options: dict[str, Any] = {"projects": projects, "keys": keys, "verdicts": True}
        call_command(GenerateActivity(), REQUESTS, requests=requests, **options, stdout=StringIO())
    if not Organization.objects.filter(name=COSTS).exists():
        call_command(GenerateCosts(), COSTS, lines=lines, stdout=StringIO())
    _make_receipt_with_everything()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as PostgreSQL does by itself within a minute


def _make_receipt_with_everything() -> None:
    """The record of one request that the ledger has, so that its receipt has all parts."""
    from billing.models import Reservation
    from inference.models import Activity

    settled = Reservation.objects.order_by("pk").last()
    if settled is not None and not Activity.objects.filter(pk=settled.pk).exists():
        Activity.objects.create(
            id=settled.pk,
            created_at=settled.admitted_at,
            ended_at=settled.admitted_at,
            organization_id=settled.organization_id,
            project_id=settled.project_id,
            api_key_id=settled.api_key_id,
            endpoint="/v1/chat/completions",
            model=settled.model,
            status=200,
            total_ms=1,
        )


def signed_in() -> Any:
    from django.contrib.auth import get_user_model
    from django.test import Client

    users = get_user_model().objects
    user = users.filter(username="benchmark").first() or users.create_superuser("benchmark", password=None)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


@dataclass(frozen=True, slots=True)
class Figures:
    first_ms: float
    median_ms: float
    processor_ms: float
    queries: int

    def __str__(self) -> str:
        note = " TOO SLOW" if self.median_ms >= LIMIT_MS else ""
        times = f"{self.first_ms:5.0f} ms {self.median_ms:5.0f} ms {self.processor_ms:6.0f} ms"
        return f"{times} {self.queries:8}{note}"


def figures(client: Any, page: Page, runs: int) -> Figures:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    connection.queries_log.clear()
    with CaptureQueriesContext(connection):
        first = took_ms(client, page)
        queries = len(connection.queries)
    before = processor_ms()
    median = statistics.median(took_ms(client, page) for _ in range(runs))
    return Figures(first, median, (processor_ms() - before) / runs, queries)


def processor_ms() -> float:
    """What this process and its session of PostgreSQL have used; of the latter where Linux tells."""
    from django.db import connection

    used = time.process_time() * 1000
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        told = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
        used += int(told.read_text().split()[0]) / 1e6 if told.exists() else 0
    return used


def took_ms(client: Any, page: Page) -> float:
    started = time.perf_counter()
    answer = client.get(page.address)
    took = (time.perf_counter() - started) * 1000
    if answer.status_code != 200:
        raise RuntimeError(f"{page.name} ({page.address}) answered {answer.status_code}")
    return took


def pages() -> list[Page]:
    """Every page of the console, and the ways to look for requests."""
    return [*console_pages(), *_requests()]


def console_pages() -> list[Page]:
    from django.urls import NoReverseMatch, reverse

    found = [Page("overview", reverse("admin:index"))]
    for name in ("playground", "live-tail", "costs"):
        try:
            found.append(Page(name, reverse(name)))
        except NoReverseMatch:
            say(f"There is no page {name!r}.")
    return [*found, *_overviews(), *_costs(), *_lists(), *_rows(), *_receipts()]


def _organization(name: str) -> Any:
    from organization.models import Organization

    return Organization.objects.get(name=name)


def _overviews() -> list[Page]:
    return [Page("overview of one organization", f"/admin/?organization={_organization(REQUESTS).pk}")]


def _costs() -> list[Page]:
    from datetime import UTC, datetime, timedelta

    from django.urls import NoReverseMatch, reverse

    try:
        address = reverse("costs")
    except NoReverseMatch:
        return []
    today = datetime.now(UTC).date()
    days = f"first_day={today - timedelta(days=89)}&last_day={today}"
    owner = f"{address}?organization={_organization(COSTS).pk}&{days}"
    return [
        Page("costs of 90 days", owner),
        Page("costs of 90 days by key", f"{owner}&group_by=api_key_id"),
    ]


def _lists() -> list[Page]:
    from django.contrib.admin import site
    from django.urls import reverse

    kinds = [(model._meta.app_label, model._meta.model_name) for model in site._registry]
    return [
        Page(f"list of {app}.{model}", reverse(f"admin:{app}_{model}_changelist")) for app, model in kinds
    ]


def _rows() -> list[Page]:
    """The page of one row of each kind."""
    from django.contrib.admin import site
    from django.urls import reverse

    found = []
    for model in site._registry:
        row = model._default_manager.order_by("pk").last()
        if row is not None:
            address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[row.pk])
            found.append(Page(f"one {model._meta.label_lower}", address))
    return found


def _requests() -> list[Page]:
    from urllib.parse import urlencode

    from django.urls import reverse

    address = reverse("admin:inference_activity_changelist")
    return [
        Page(f"requests: {' & '.join(question) or 'all'}", f"{address}?{urlencode(question.parameters)}")
        for question in map(Question, _questions())
    ]


class Question(list[str]):
    """The names of some filters, with what they are set to."""

    def __init__(self, parameters: dict[str, str]) -> None:
        names = {name: name.removesuffix("__id__exact") for name in parameters}
        told = ("status", "when", "p", "model", "q")
        super().__init__(
            f"{names[name]}={value[:12]}" if name in told else names[name]
            for name, value in parameters.items()
        )
        self.parameters = parameters


def _questions() -> list[dict[str, str]]:
    from inference.models import Activity

    newest = Activity.objects.filter(organization=_organization(REQUESTS)).order_by("-ended_at")
    busy = newest[0]
    project, key, owner = (
        {f"{name}__id__exact": str(getattr(busy, f"{name}_id"))}
        for name in ("project", "api_key", "organization")
    )
    model, rare = {"model": "made-up-1"}, {"model": "made-up-6"}
    single: list[dict[str, str]] = [
        project,
        key,
        owner,
        model,
        rare,
        {"model": "nobody-asked-for-this"},
        *({"status": each} for each in ("ok", "refused", "failed", "404", "500", "201")),
        *({"when": each} for each in ("1h", "24h", "7d", "30d")),
        {"from": f"{busy.ended_at:%Y}-01-01", "to": f"{busy.ended_at:%Y-%m-%d}"},
    ]
    failed, unseen, month = {"status": "failed"}, {"status": "418"}, {"when": "30d"}
    combined = [
        project | model,
        project | failed,
        owner | {"status": "ok"},
        owner | unseen,
        owner | failed,
        owner | model | failed,
        model | failed,
        model | unseen,
        model | {"status": "201"},
        key | failed,
        key | rare | unseen | month,
        owner | project | key | model | failed | month,
        project | month,
    ]
    last = [{"p": "200"}, owner | {"p": "200"}, model | {"status": "ok", "p": "10"}]
    search = [{"q": str(busy.pk)[:6] + "00"}, {"q": "0" * 32}]
    return [{}, *single, *combined, *last, *search]


def _receipts() -> list[Page]:
    from django.urls import reverse

    from billing.models import CostLine
    from policies.models import Verdict

    charged = CostLine.objects.order_by("pk").last()
    judged = Verdict.objects.order_by("pk").last()
    found = []
    if charged is not None:
        found.append(
            Page(
                "receipt with charges",
                reverse("admin:inference_activity_change", args=[charged.reservation_id]),
            )
        )
    if judged is not None:
        found.append(
            Page(
                "receipt with verdicts", reverse("admin:inference_activity_change", args=[judged.request_id])
            )
        )
    return found


if __name__ == "__main__":
    main()
