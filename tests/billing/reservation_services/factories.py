"""Requests whose outcome nobody knows."""

from __future__ import annotations

from typing import Any

from billing.ledger.ledger import Ledger
from billing.ledger.operations import Heartbeat, Hold, MarkUnknown
from tests.billing.factories import Customer, used


def make_unknown(
    ledger: Ledger, customer: Customer, count: int = 1, seen: int | None = None, **options: Any
) -> list[Hold]:
    """Requests of 100 each whose backend failed, after `seen` tokens if there were any."""
    answers = ledger.call_all([customer.request(100, **options) for _ in range(count)])
    holds = [answer for answer in answers if isinstance(answer, Hold)]
    if seen is not None:
        ledger.call_all([Heartbeat(hold.id, hold.organization_id, used(seen)) for hold in holds])
    ledger.call_all([MarkUnknown(hold.id, hold.organization_id) for hold in holds])
    assert len(holds) == count
    return holds
