"""
How many requests a second the ledger can hold credit for and settle, durably, for one hot organization;
and the same work done plainly with the ORM, one transaction for each step, in the same run.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier

from django.db import connection, connections, transaction
from django.utils import timezone

from billing.ledger.ledger import Ledger
from billing.ledger.operations import HoldRequest, LedgerLimits
from billing.models import (
    Account,
    CostLine,
    CreditGrant,
    KeyMeter,
    PriceVersion,
    Reservation,
    SpendingCap,
    UnrolledCost,
)
from billing.prices import bill
from billing.prices.card import CardVersion, PriceCard
from billing.prices.price import Quantities
from organization.models import Organization, Project, ProjectKey

CARD = PriceCard.flat(prompt=150_000, cached=75_000, completion=600_000)
VERSION = CardVersion(uuid.uuid5(uuid.NAMESPACE_OID, CARD.checksum), CARD)
USED = Quantities(prompt=100, completion=20)
BOUNDS = Quantities(prompt=2_000, completion=1_000)
HOLD_NANOUSD = 1_000_000
# As many as a process would have in its pool of connections. SQLite has one writer, and threads that fight
# for it only make the plain way slower.
THREADS = {"postgresql": 16, "sqlite": 1}
LIMITS = LedgerLimits(requests_per_minute=10**9, concurrency=10**6)


@dataclass(frozen=True, slots=True)
class Measured:
    pairs_per_second: float
    p50_ms: float
    p99_ms: float


Pair = Callable[[], Awaitable[None]]


def make_key() -> ProjectKey:
    """The hot organization, with all the credit it needs."""
    organization = Organization.objects.create(name=f"Benchmark {uuid.uuid4().hex}")
    account = Account.objects.create(organization=organization, granted_nanousd=10**18)
    CreditGrant.objects.create(account=account, amount_nanousd=10**18)
    project = Project.objects.create(organization=organization, name="Hot")
    PriceVersion.objects.get_or_create(
        pk=VERSION.id,
        defaults={
            "model": "hot",
            "valid_from": timezone.now(),
            "source": "benchmark",
            "checksum": CARD.checksum,
            "card_json": CARD.to_json(),
        },
    )
    unique = uuid.uuid4().hex
    return ProjectKey.objects.create(project=project, name="hot", digest=unique, redacted_value=unique[:8])


def measure_ledger(key: ProjectKey, concurrency: int, seconds: float) -> Measured:
    """Group commit, as the gateway uses it."""
    ledger = Ledger(LIMITS)
    organization_id = key.project.organization_id

    async def pair() -> None:
        hold = await ledger.reserve(
            HoldRequest(
                request_id=uuid.uuid4(),
                organization_id=organization_id,
                project_id=key.project_id,
                key_id=key.pk,
                amount_nanousd=HOLD_NANOUSD,
                model="hot",
                version=VERSION,
                bounds=BOUNDS,
            )
        )
        await ledger.settle(hold, USED)

    try:
        return asyncio.run(_measure(pair, concurrency, seconds))
    finally:
        ledger.close(10)


def measure_orm(key: ProjectKey, concurrency: int, seconds: float) -> Measured:
    """One transaction for the hold and one for the settlement, from a pool of threads."""
    threads = THREADS[connection.vendor]
    with ThreadPoolExecutor(threads) as pool:

        async def pair() -> None:
            loop = asyncio.get_running_loop()
            reservation_id = await loop.run_in_executor(pool, orm_reserve, key)
            await loop.run_in_executor(pool, orm_settle, reservation_id)

        measured = asyncio.run(_measure(pair, concurrency, seconds))
        everyone = Barrier(threads)
        for _ in range(threads):
            pool.submit(_close_connections, everyone)
    return measured


def _close_connections(everyone: Barrier) -> None:
    everyone.wait(10)  # so that each thread takes one
    connections.close_all()


async def _measure(pair: Pair, concurrency: int, seconds: float) -> Measured:
    await pair()  # connect and prepare
    started = time.perf_counter()
    until = started + seconds
    took: list[float] = []

    async def caller() -> None:
        while (before := time.perf_counter()) < until:
            await pair()
            took.append(time.perf_counter() - before)

    await asyncio.gather(*(caller() for _ in range(concurrency)))
    elapsed = time.perf_counter() - started
    took.sort()
    return Measured(
        pairs_per_second=round(len(took) / elapsed, 1),
        p50_ms=round(took[len(took) // 2] * 1_000, 1),
        p99_ms=round(took[len(took) * 99 // 100] * 1_000, 1),
    )


# --- the plain way -----------------------------------------------------------------------------------


@transaction.atomic
def orm_reserve(key: ProjectKey) -> uuid.UUID:
    account = Account.objects.select_for_update().get(pk=key.project.organization_id)
    live = ProjectKey.objects.select_related("project").get(pk=key.pk)
    now = timezone.now()
    meter, _ = KeyMeter.objects.get_or_create(pk=key.pk, defaults={"window_starts_at": now})
    caps = list(SpendingCap.objects.filter(organization=account.organization_id))
    if live.revoked_at or live.project.archived_at or caps or account.available_nanousd < HOLD_NANOUSD:
        raise RuntimeError("The benchmark's organization may do all it wants.")
    account.held_nanousd += HOLD_NANOUSD
    account.save(update_fields=["held_nanousd"])
    meter.live_holds += 1
    meter.window_requests += 1
    meter.save(update_fields=["live_holds", "window_requests"])
    row = Reservation.objects.create(
        organization_id=account.organization_id,
        project_id=key.project_id,
        api_key_id=key.pk,
        model="hot",
        price_version_id=VERSION.id,
        bounds={"prompt": BOUNDS.prompt, "completion": BOUNDS.completion},
        state="held",
        reserved_nanousd=HOLD_NANOUSD,
        admitted_at=now,
        dispatched_at=now,
        lease_expires_at=now + timedelta(seconds=15),
        deadline_at=now + timedelta(seconds=240),
    )
    return row.pk


@transaction.atomic
def orm_settle(reservation_id: uuid.UUID) -> None:
    organization_id = Reservation.objects.values_list("organization_id", flat=True).get(pk=reservation_id)
    account = Account.objects.select_for_update().get(pk=organization_id)
    row = Reservation.objects.select_for_update().get(pk=reservation_id)
    row.charged_nanousd = min(bill.charge(row.price_version.card, USED), row.reserved_nanousd)
    row.state, row.basis, row.resolved_at = "settled", "usage", timezone.now()
    row.save(update_fields=["charged_nanousd", "state", "basis", "resolved_at"])
    account.held_nanousd -= row.reserved_nanousd
    account.settled_nanousd += row.charged_nanousd
    account.save(update_fields=["held_nanousd", "settled_nanousd"])
    meter = KeyMeter.objects.get(pk=row.api_key_id)
    meter.live_holds -= 1
    meter.save(update_fields=["live_holds"])
    lines = [
        {
            "organization_id": organization_id,
            "project_id": row.project_id,
            "api_key_id": row.api_key_id,
            "day": row.admitted_at.date(),
            "line_item": f"{row.model}, {line.item}",
            "quantity": line.quantity,
            "amount_nanousd": line.amount_nanousd,
        }
        for line in bill.lines(CARD, USED, row.charged_nanousd)
    ]
    CostLine.objects.bulk_create(
        [CostLine(reservation=row, admitted_at=row.admitted_at, **line) for line in lines]
    )
    UnrolledCost.objects.bulk_create([UnrolledCost(lines=1, **line) for line in lines])
