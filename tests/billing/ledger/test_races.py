"""A reservation ends once, whoever gets there first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.utils import timezone

from billing.ledger.ledger import Ledger
from billing.ledger.operations import Expire, Heartbeat, Hold, Operation, Release, ReservationOutcome, Settle
from billing.models import Reservation
from tests.billing.factories import make_customer, used

RACES = 1_000


@pytest.mark.slow
def test_a_thousand_races_have_a_thousand_winners(make_ledger: Callable[..., Ledger]) -> None:
    customer = make_customer(credit=RACES * 100)
    first = make_ledger()
    holds = first.call_all([customer.request(100, is_dispatched=i % 2 == 0) for i in range(RACES)])
    # So that the sweeper ends them too, with a charge or without; an unknown one could be settled later.
    first.call_all([Heartbeat(h.id, h.organization_id, used(5)) for h in holds if isinstance(h, Hold)])
    later = timezone.now() + timedelta(minutes=1)

    def contenders(hold: Hold) -> list[Operation]:
        place = (hold.id, hold.organization_id)
        return [Settle(*place, used(10)), Settle(*place, used(20)), Expire(*place, later), Release(*place)]

    # One ledger, and so one connection, for each kind of ending; each in an order of its own.
    lanes = [list(lane) for lane in zip(*(contenders(h) for h in holds if isinstance(h, Hold)), strict=True)]
    ledgers = [make_ledger() for _ in lanes]
    start = Barrier(len(lanes))

    def run(ledger: Ledger, lane: list[Operation]) -> Counter[str]:
        random.shuffle(lane)
        won: Counter[str] = Counter()
        for few in _batched(lane, 50):
            # All at once each time: whoever has SQLite's lock would otherwise keep it to the end.
            start.wait(60)
            for operation, answer in zip(few, ledger.call_all(few), strict=True):
                assert isinstance(answer, ReservationOutcome)
                if answer.won:
                    won[str(operation.reservation_id)] += 1  # type: ignore[union-attr]
        return won

    with ThreadPoolExecutor(len(lanes)) as pool:
        lanes_won = list(pool.map(run, ledgers, lanes))

    winners = sum(lanes_won, Counter())
    assert len(winners) == RACES
    assert set(winners.values()) == {1}
    assert sum(1 for won in lanes_won if won) > 1, "one lane won every race, so there was none"
    assert not Reservation.objects.filter(state__in=["held", "unknown"]).exists()


def _batched(lane: list[Operation], size: int) -> list[list[Operation]]:
    return [lane[i : i + size] for i in range(0, len(lane), size)]
