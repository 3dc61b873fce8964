"""Requests that were settled on a day of one's choice, by the ledger itself with another clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db import connection, transaction

from billing.ledger import batch
from billing.ledger.changes import Changes, TouchedReservations
from billing.ledger.operations import Hold, HoldRequest, LedgerLimits, Operation, Settle
from billing.ledger.rows import CardRow, LockedRows, NeededRows
from billing.prices.bill import charge
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from tests.billing.factories import PRICE, Customer, version_of

DAY = 86_400
FIRST = date(2026, 3, 1)


def midnight(day: date) -> int:
    """As the report writes it."""
    return int(datetime.combine(day, time(), UTC).timestamp())


def after(days: int) -> date:
    return FIRST + timedelta(days=days)


@dataclass
class FixedClockStore:
    """A store whose clock stands still."""

    moment: datetime
    store: batch.Store

    def transaction(self) -> AbstractContextManager[None]:
        return self.store.transaction()

    def read(self, needs: NeededRows, *, wait: bool) -> LockedRows:
        rows = self.store.read(needs, wait=wait)
        rows.now = self.moment
        return rows

    def read_cards(self, versions: Collection[str]) -> list[CardRow]:
        return self.store.read_cards(versions)

    def write(self, changes: Changes) -> Callable[[], TouchedReservations]:
        return self.store.write(changes)


@dataclass(frozen=True)
class Usage:
    customer: Customer
    day: date
    prompt: int = 0
    completion: int = 0
    model: str = "gpt"
    price: PriceCard = PRICE


def settle(*usages: Usage, clock: time = time(12)) -> None:
    """Admit and settle these requests, each on its day. Requests of a day share a batch, as they do."""
    for day in sorted({usage.day for usage in usages}):
        of_day = [usage for usage in usages if usage.day == day]
        holds = hold(*of_day, clock=clock)
        apply(
            day,
            clock,
            [
                Settle(each.id, each.organization_id, Quantities(prompt=u.prompt, completion=u.completion))
                for each, u in zip(holds, of_day, strict=True)
            ],
        )


def hold(*usages: Usage, clock: time = time(12)) -> list[Hold]:
    """Admit requests of one day and leave them so."""
    requests = [
        usage.customer.request(
            charge(usage.price, Quantities(prompt=usage.prompt, completion=usage.completion)),
            model=usage.model,
            version=version_of(usage.price, usage.model),
        )
        for usage in usages
    ]
    return [answer for answer in apply(usages[0].day, clock, requests) if isinstance(answer, Hold)]


def apply(
    day: date, clock: time, operations: Iterable[Operation | HoldRequest]
) -> list[batch.OperationResult]:
    store = FixedClockStore(datetime.combine(day, clock, UTC), batch.store_over(connection))
    with transaction.atomic():
        finish = batch.apply(store, list(operations), LedgerLimits())
    return finish().answers
