"""Settled requests of an organization of their own, with books that balance as if each had been made."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connection, transaction
from django.db.models import F
from msgspec.json import encode

from billing.models import Account
from billing.money import MAX_NANOUSD, usd
from billing.prices.bill import charge, lines
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from billing.prices.versions import add_version
from billing.reports.rollup import roll_up
from billing.services import grant_credit
from gateway_site.management.operator_command import OperatorCommand
from organization import services
from organization.audit.trail import Actor
from organization.models import Organization, ProjectKey

# Prompt and completion: every request here has both.
LINES_PER_REQUEST = 2
MAX_OPTIONS = {"lines": 200_000_000, "days": 3_650, "projects": 1_000, "keys": 2_000, "models": 20}
# Requests in one transaction: a second or so of writing, and some 60 MB of rows in memory.
BATCH = 50_000
CARD = PriceCard.flat(prompt=150_000, cached=75_000, completion=600_000)
MIN_TEMPLATES = 200

RESERVATION = (
    "id, organization_id, project_id, api_key_id, model, choices,"
    " price_version_id, bounds, used, ended_by, state, basis, reserved_nanousd,"
    " charged_nanousd, operator_loss_nanousd, admitted_at, dispatched_at, lease_expires_at, deadline_at,"
    " resolved_at"
)
COST = "organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd"

ACTOR = Actor.command("generate_costs")

# Every value as text, which both databases turn into the column's type.
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A request that may be made: a key, a model, and how much of it is used."""

    reservation: Row
    lines: tuple[Row, Row]
    line_owner: Row
    charged: int


class GenerateCosts(OperatorCommand):
    help = (
        "Fill an organization of its own with settled requests, for measuring. The books balance, as if each"
        " had been made. The organization must be new, so that nothing made up is mixed with real charges."
    )

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="name; it is created")
        parser.add_argument(
            "--lines", type=int, required=True, help=f"up to {MAX_OPTIONS['lines']:,}; 2 a request"
        )
        parser.add_argument("--days", type=int, default=90, help="up to yesterday (default: 90)")
        parser.add_argument("--projects", type=int, default=5)
        parser.add_argument("--keys", type=int, default=20, help="over all projects")
        parser.add_argument("--models", type=int, default=3)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--unrolled", action="store_true", help="leave the roll-up to others")

    def perform(self, **options: Any) -> dict[str, Any]:
        self._check_bounds(options)
        owner = self._new_organization(options["organization"])
        rng = random.Random(options["seed"])
        keys = self._make_keys(owner, options["projects"], options["keys"])
        templates = _templates(keys, options["models"], rng)
        requests = options["lines"] // LINES_PER_REQUEST
        most = requests * max(template.charged for template in templates)
        if most > MAX_NANOUSD:
            raise CommandError("An account cannot hold that much.")
        grant_credit(organization=owner, amount_nanousd=most, actor=ACTOR, reason="made up")
        started = time.monotonic()
        charged = 0
        for batch in _batches(templates, requests, options["days"], rng):
            charged += _write(owner, batch)
            self._report_progress(batch.last, requests, started)
        rolled = 0 if options["unrolled"] else roll_up()
        return {
            "organization_id": str(owner.pk),
            "requests": requests,
            "lines": requests * LINES_PER_REQUEST,
            "charged_usd": usd(charged),
            "rolled_up": rolled,
            "seconds": round(time.monotonic() - started, 1),
        }

    def _check_bounds(self, options: dict[str, Any]) -> None:
        for name, most in MAX_OPTIONS.items():
            least = LINES_PER_REQUEST if name == "lines" else 1
            if not least <= options[name] <= most:
                raise CommandError(f"--{name} must be from {least} to {most:,}.")

    def _new_organization(self, name: str) -> Organization:
        owner, _ = services.create_organization(name=name, actor=ACTOR)
        # The first hold, or the first credit, makes the account.
        if Account.objects.filter(pk=owner.pk).exists():
            raise CommandError(f"{name!r} has been used already; name a new organization.")
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
        rate = done * LINES_PER_REQUEST / (time.monotonic() - started)
        self.stderr.write(
            f"{done * LINES_PER_REQUEST:,} of {requests * LINES_PER_REQUEST:,} lines, {rate:,.0f}/s"
        )


@dataclass(slots=True)
class Batch:
    reservations: list[Row]
    lines: list[Row]
    unrolled: list[Row]
    charged: int
    last: int


def _templates(keys: list[ProjectKey], models: int, rng: random.Random) -> list[Template]:
    """A few hundred requests of different sizes; each that is generated is one of them."""
    made: list[Template] = []
    versions = {
        model: add_version(model=model, card=CARD, source="made up", actor=ACTOR)[0].pk.hex
        for model in (f"made-up-{i + 1}" for i in range(models))
    }
    for _ in range(max(MIN_TEMPLATES, len(keys) * models)):
        used = Quantities(prompt=rng.randint(1, 4_000), completion=rng.randint(1, 1_000))
        charged = charge(CARD, used)
        key, model = keys[len(made) % len(keys)], f"made-up-{len(made) // len(keys) % models + 1}"
        owner = (key.project.organization_id.hex, key.project_id.hex, key.pk.hex)
        quantities = encode(used).decode()
        terms = (versions[model], quantities, quantities, "complete")
        amounts = (*terms, "settled", "usage", str(charged), str(charged), "0")
        parts = {line.item: line for line in lines(CARD, used, charged)}
        prompt, completion = (
            (f"{model}, {item}", str(parts[item].quantity), str(parts[item].amount_nanousd))
            for item in ("prompt", "completion")
        )
        made.append(Template((*owner, model, "1", *amounts), (prompt, completion), owner, charged))
    return made


def _batches(templates: list[Template], requests: int, days: int, rng: random.Random) -> Iterable[Batch]:
    """Requests evenly over the days, in order."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start, span = today - timedelta(days=days), days * 86_400
    # Ids in order too: they fill an index several times as fast as random ones would.
    run = secrets.token_hex(8)
    for first in range(0, requests, BATCH):
        batch = Batch([], [], [], 0, min(first + BATCH, requests))
        sums: dict[Row, list[int]] = {}
        for i in range(first, batch.last):
            moment = str(start + timedelta(seconds=i * span // requests))[:19]
            day, reservation_id = moment[:10], f"{run}{i:016x}"
            template = templates[int(rng.random() * len(templates))]
            # No time passes while such a request runs.
            batch.reservations.append((reservation_id, *template.reservation, *(moment,) * 5))
            batch.charged += template.charged
            for item, quantity, amount in template.lines:
                line = (*template.line_owner, day, item, quantity, amount, reservation_id, moment, "0")
                batch.lines.append(line)
                sum_of = sums.setdefault((*template.line_owner, day, item), [0, 0, 0])
                sum_of[0] += int(quantity)
                sum_of[1] += int(amount)
                sum_of[2] += 1
        batch.unrolled = [(*cell, *map(str, totals)) for cell, totals in sums.items()]
        yield batch


def _write(owner: Organization, batch: Batch) -> int:
    """One transaction: whatever interrupts the command, the books balance."""
    with transaction.atomic():
        _insert("billing_reservation", RESERVATION, batch.reservations)
        _insert("billing_costline", f"{COST}, reservation_id, admitted_at, revision", batch.lines)
        _insert("billing_unrolledcost", f"{COST}, lines", batch.unrolled)
        Account.objects.filter(pk=owner.pk).update(settled_nanousd=F("settled_nanousd") + batch.charged)
    return batch.charged


def _insert(table: str, columns: str, rows: list[Row]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # No value here has a tab, a line break or a backslash in it.
            with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                copy.write("".join("\t".join(row) + "\n" for row in rows))
        else:
            marks = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
