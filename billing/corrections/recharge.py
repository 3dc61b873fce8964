"""
The new charge of a settled request under another card, as differences. Nothing here touches a database.

The bill is computed from the quantities that the request was charged for. More than before is charged as far
as there is credit; what is beyond that is the operator's loss and is never asked for again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from billing.money import MAX_NANOUSD
from billing.prices import bill
from billing.prices.bill import BillLine
from billing.prices.card import CardVersion
from billing.prices.price import Quantities


class SettledRequest(Struct, frozen=True):
    """A settled request as it stands: its settlement and all corrections so far."""

    id: uuid.UUID
    project_id: uuid.UUID
    key_id: uuid.UUID
    model: str
    admitted_at: datetime
    # None where it was settled at an amount, without quantities.
    used: Quantities | None
    # What it is charged under, and the number of its last revision.
    version_id: uuid.UUID
    revision: int
    charged_nanousd: int

    def item_of(self, line: BillLine) -> str:
        """The name of a bill's line among cost lines, as the ledger writes it."""
        return f"{self.model}, {line.item}"


# Quantity and amount of each line item.
LineSums = dict[str, tuple[int, int]]


class RatedRequest(Struct, frozen=True):
    """A request that is to be charged by a version, and its cost lines, summed over all revisions."""

    request: SettledRequest
    lines: LineSums
    version: CardVersion


class Recharge(Struct, frozen=True):
    """What one correction makes of one request's charge."""

    request: SettledRequest
    version_id: uuid.UUID
    charged_nanousd: int
    uncollected_nanousd: int
    # Cost lines to add, by line item: differences of quantity and amount.
    changes: LineSums

    @property
    def difference_nanousd(self) -> int:
        return self.charged_nanousd - self.request.charged_nanousd


def recharge(rated: RatedRequest, available_nanousd: int) -> Recharge | None:
    """
    The request's charge by its version, with so much credit for more; None where all stays as it is.

    A request that costs more than was charged is never left as it is: otherwise the same run would charge it
    once there is credit again.
    """
    request, card = rated.request, rated.version.card
    if request.used is None:
        raise ValueError(f"{request.id} was settled without quantities.")
    cost = bill.charge(card, request.used)
    charged = min(cost, request.charged_nanousd + max(0, available_nanousd))
    new_lines = {
        request.item_of(line): (line.quantity, line.amount_nanousd)
        for line in bill.lines(card, request.used, charged)
    }
    changes = _differences(rated.lines, new_lines)
    if not changes and charged == cost:
        return None
    return Recharge(request, rated.version.id, charged, min(cost - charged, MAX_NANOUSD), changes)


def recharge_in_order(requests: Iterable[RatedRequest], available_nanousd: int) -> list[Recharge]:
    """The new charges of one organization's requests, each with the credit that those before it left."""
    found = []
    for rated in requests:
        new = recharge(rated, available_nanousd)
        if new is not None:
            available_nanousd -= new.difference_nanousd
            found.append(new)
    return found


def _differences(old: LineSums, new: LineSums) -> LineSums:
    found = {}
    for item in (*new, *(item for item in old if item not in new)):
        (quantity, amount), (quantity_before, amount_before) = new.get(item, (0, 0)), old.get(item, (0, 0))
        if (quantity, amount) != (quantity_before, amount_before):
            found[item] = (quantity - quantity_before, amount - amount_before)
    return found
