"""Requests that were settled in the past by a card of one's choice, and the books that they leave."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from billing.corrections.history import history_of
from billing.corrections.requests import CorrectionScope
from billing.ledger import batch
from billing.ledger.operations import Hold, LedgerLimits, Operation, Settle
from billing.models import CapPeriod, CostLine, DailyCost, PriceVersion, Reservation, UnrolledCost
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from billing.prices.versions import add_version
from tests.billing.factories import SOMEONE, Customer, make_key
from tests.billing.settled_requests import FixedClockStore

MODEL = "gpt"
A_DAY = timedelta(days=1)
# The prices of a model, and the same with a digit too many and without what they have beside.
RIGHT = PriceCard(
    {
        "prompt": Rate(3_000, (Tier(500, 6_000),)),
        "completion": Rate(15_000, (Tier(500, 22_500),)),
        "cached": Rate(300),
        "reasoning": Rate(12_345),
        "image": Rate(1_000_001),
        "request": Rate(777),
    }
)
WRONG = PriceCard.flat(prompt=30_000, completion=150_000)
# Small ones: a nano-USD a prompt token, and ten times as much.
ONCE = PriceCard.flat(prompt=1_000, completion=2_000)
TEN_TIMES = PriceCard.flat(prompt=10_000, completion=20_000)


@dataclass(frozen=True)
class UsedAt:
    """What one request used, when it was admitted, and by which of its customer's keys."""

    moment: datetime
    used: Quantities
    key_number: int = 0


@cache
def first_day() -> datetime:
    """A midnight in the past, the same one for as long as the tests run."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 40 * A_DAY


def noon(day: int = 0, prompt: int = 100, completion: int = 50) -> UsedAt:
    """A request of 200 nano-USD at ONCE, at noon of a day."""
    moment = first_day() + day * A_DAY + timedelta(hours=12)
    return UsedAt(moment, Quantities(prompt=prompt, completion=completion))


def charged(identifier: uuid.UUID) -> int:
    """What a request is charged now, with all corrections."""
    return history_of(Reservation.objects.get(pk=identifier))[-1].charged_nanousd


def scope_of(**options: Any) -> CorrectionScope:
    """All requests of the model in the days that requests are made for here."""
    first = first_day()
    return CorrectionScope(**{"model": MODEL, "starts_at": first, "ends_at": first + 35 * A_DAY, **options})


def add_card(card: PriceCard, **options: Any) -> PriceVersion:
    """A version of the model's card that is in force from the first day on."""
    options = {"model": MODEL, "valid_from": first_day(), "is_confirmed": True, **options}
    return add_version(card=card, source="tests", actor=SOMEONE, **options)[0]


def settle_at(customers: Sequence[Customer], version: PriceVersion, *requests: UsedAt) -> list[uuid.UUID]:
    """Admit and settle these requests by the ledger with another clock; one customer for each key."""
    ids = []
    for moment in sorted({each.moment for each in requests}):
        now = [each for each in requests if each.moment == moment]
        holds = hold_at(customers, version, *now)
        ids += [hold.id for hold in holds]
        settlements = [
            Settle(hold.id, hold.organization_id, each.used) for hold, each in zip(holds, now, strict=True)
        ]
        apply_at(moment, settlements)
    return ids


def hold_at(customers: Sequence[Customer], version: PriceVersion, *requests: UsedAt) -> list[Hold]:
    """Admit requests of one moment and leave them so."""
    card = version.versioned_card
    answers = apply_at(
        requests[0].moment,
        [
            customers[each.key_number].request(
                hold_amount(card.card, each.used), model=version.model, version=card, bounds=each.used
            )
            for each in requests
        ],
    )
    holds = [answer for answer in answers if isinstance(answer, Hold)]
    assert len(holds) == len(requests), answers
    return holds


def apply_at(moment: datetime, operations: Sequence[Operation]) -> list[batch.OperationResult]:
    store = FixedClockStore(moment, batch.store_over(connection))
    with transaction.atomic():
        finish = batch.apply(store, operations, LedgerLimits())
    return finish().answers


# --- many requests, and everything that they leave ----------------------------------------------------


def many_requests(count: int, *, at_once: int = 20) -> list[UsedAt]:
    """Requests of all shapes over a month and a bit, some at once; the same ones whenever it is called."""
    chance = random.Random(14)
    found = []
    for number in range(count):
        prompt, completion = chance.randrange(1_000), chance.randrange(300)
        used = Quantities(
            prompt=prompt,
            completion=completion,
            cached=chance.randrange(prompt + 1) if chance.random() < 0.5 else 0,
            reasoning=chance.randrange(completion + 1) if chance.random() < 0.5 else 0,
            images=chance.choice([0, 0, 1, 3]),
        )
        moment = first_day() + 34 * A_DAY * (number // at_once * at_once) / count
        found.append(UsedAt(moment, used, chance.randrange(2)))
    return found


def with_two_keys(customer: Customer) -> list[Customer]:
    """A customer as two, each with a key of its own, and limits of every kind."""
    other = Customer(customer.organization, customer.project, make_key(customer.project))
    for scope in ("organization", "project", "key"):
        for period in ("day", "month", "total"):
            customer.limit(scope, period, 10**15)
    return [customer, other]


def books_of(customers: Sequence[Customer], ids: Sequence[uuid.UUID]) -> dict[str, Any]:
    """The books of a customer, as they are told without the ids of its own: equal where all sums are."""
    numbers = {customer.key.pk: number for number, customer in enumerate(customers)}
    organization = customers[0].organization
    daily: defaultdict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for model in (DailyCost, UnrolledCost):
        for cost in model.objects.filter(organization=organization):
            sums = daily[cost.day, numbers[cost.api_key_id], cost.line_item]
            sums[0] += cost.quantity
            sums[1] += cost.amount_nanousd
    requests = {identifier: number for number, identifier in enumerate(ids)}
    lines = (
        CostLine.objects.filter(organization=organization)
        .values_list("reservation_id", "line_item")
        .annotate(Sum("quantity"), Sum("amount_nanousd"))
    )
    periods = CapPeriod.objects.filter(cap__organization=organization).select_related("cap")
    account = customers[0].account
    return {
        "balance": (account.granted_nanousd, account.held_nanousd, account.settled_nanousd),
        # What came to nothing is as good as nothing.
        "daily": {key: tuple(sums) for key, sums in daily.items() if any(sums)},
        "lines": {
            (requests[identifier], item): (int(quantity), int(amount))
            for identifier, item, quantity, amount in lines
            if quantity or amount
        },
        "caps": {
            (each.cap.scope, each.cap.period, each.starts_at): (each.held_nanousd, each.settled_nanousd)
            for each in periods
        },
    }
