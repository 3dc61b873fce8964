"""A correction that is interrupted, that meets another, and that meets the requests of its customers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from threading import Barrier, Thread

import pytest
from django.db import connection

from billing.corrections import requests
from billing.corrections import rerate as rerate_module
from billing.corrections.recharge import Recharge
from billing.corrections.rerate import rerate
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, Settle
from billing.models import Correction, CostAdjustment, PriceVersion
from billing.prices.price import Quantities
from tests.billing.corrections.priced_requests import ONCE, add_card, charged, noon, scope_of, settle_at
from tests.billing.factories import SOMEONE, Customer


def test_an_interrupted_run_is_completed_by_the_next(
    rich: Customer, wrong: PriceVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = settle_at([rich], wrong, *(noon(day) for day in range(6)))
    add_card(ONCE)
    monkeypatch.setattr(requests, "BATCH", 2)
    write, pages = rerate_module.write_entries, []

    def write_then_die(
        correction: Correction, organization_id: uuid.UUID, entries: Sequence[Recharge]
    ) -> None:
        write(correction, organization_id, entries)
        pages.append(len(entries))
        if len(pages) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(rerate_module, "write_entries", write_then_die)
    with pytest.raises(KeyboardInterrupt):
        rerate(scope_of(), actor=SOMEONE)
    # The page that was being written is not there, nor half of it.
    assert sorted(map(charged, ids)) == [200, 200, 2_000, 2_000, 2_000, 2_000]
    monkeypatch.setattr(rerate_module, "write_entries", write)

    assert rerate(scope_of(), actor=SOMEONE).changed == 4

    assert rich.account.settled_nanousd == 1_200
    assert CostAdjustment.objects.count() == 6


def test_two_runs_at_once_correct_each_request_once(
    rich: Customer, wrong: PriceVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_at([rich], wrong, *(noon(day) for day in range(12)))
    add_card(ONCE)
    monkeypatch.setattr(requests, "BATCH", 3)
    both, changed = Barrier(2), []

    def run() -> None:
        both.wait(10)
        changed.append(rerate(scope_of(), actor=SOMEONE).changed)
        connection.close()

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sum(changed) == 12
    assert len(changed) == 2
    assert rich.account.settled_nanousd == 12 * 200


@pytest.mark.slow
def test_requests_are_admitted_while_a_period_is_rated_again(
    ledger: Ledger, rich: Customer, wrong: PriceVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_at([rich], wrong, *(noon(day) for day in range(20)))
    add_card(ONCE)
    monkeypatch.setattr(requests, "BATCH", 2)

    def run() -> None:
        rerate(scope_of(), actor=SOMEONE)
        connection.close()

    correcting = Thread(target=run)
    correcting.start()
    admitted = 0
    while correcting.is_alive() or not admitted:
        hold = ledger.call(rich.request(10))
        assert isinstance(hold, Hold)
        ledger.call(Settle(hold.id, hold.organization_id, Quantities(prompt=10)))
        admitted += 1
    correcting.join(30)

    assert rich.account.settled_nanousd == 20 * 200 + admitted * 10
