"""
A request's charge over time: as it was settled, and after each correction.

    for revision in history_of(reservation):
        revision.charged_nanousd, revision.difference_nanousd, revision.version_id, revision.lines

The first entry is the settlement, the last is what stands now. A request that is not settled has none.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from billing.models import CostAdjustment, CostLine, Reservation
from billing.prices.bill import BillLine


@dataclass(frozen=True, slots=True)
class ChargeRevision:
    """What a request was charged from one moment on, and how that differs from what was charged before."""

    # 0 for the settlement, then one more for each correction.
    number: int
    made_at: datetime
    # The price version that the request is charged by.
    version_id: uuid.UUID
    charged_nanousd: int
    # To the revision before; for the settlement, the whole charge.
    difference_nanousd: int
    # What the request cost by this version beyond what could be charged.
    uncollected_nanousd: int
    # Why the correction was made, and the run that made it. Empty and None for the settlement.
    reason: str
    correction_id: uuid.UUID | None
    # The bill as it stood after this revision; items are named as on a bill ("prompt"), without the model.
    lines: list[BillLine]
    # The cost lines that this revision added: differences, which may be negative.
    changes: list[BillLine]


def history_of(reservation: Reservation) -> list[ChargeRevision]:
    """Every revision of a settled request's charge, oldest first, in two queries."""
    if reservation.charged_nanousd is None or reservation.resolved_at is None:
        return []
    if reservation.state != Reservation.State.SETTLED:
        return []
    changes = _changes_by_revision(reservation)
    revisions = [
        ChargeRevision(
            number=0,
            made_at=reservation.resolved_at,
            version_id=reservation.price_version_id,
            charged_nanousd=reservation.charged_nanousd,
            difference_nanousd=reservation.charged_nanousd,
            uncollected_nanousd=reservation.operator_loss_nanousd,
            reason="",
            correction_id=None,
            lines=changes.get(0, []),
            changes=changes.get(0, []),
        )
    ]
    adjustments = CostAdjustment.objects.filter(reservation_id=reservation.pk).select_related("correction")
    for adjustment in adjustments.order_by("revision"):
        changed = changes.get(adjustment.revision, [])
        revisions.append(
            ChargeRevision(
                number=adjustment.revision,
                made_at=adjustment.created_at,
                version_id=adjustment.to_version_id,
                charged_nanousd=adjustment.charged_after_nanousd,
                difference_nanousd=adjustment.difference_nanousd,
                uncollected_nanousd=adjustment.uncollected_nanousd,
                reason=adjustment.correction.reason,
                correction_id=adjustment.correction_id,
                lines=_added(revisions[-1].lines, changed),
                changes=changed,
            )
        )
    return revisions


def _changes_by_revision(reservation: Reservation) -> dict[int, list[BillLine]]:
    found: dict[int, list[BillLine]] = {}
    for line in CostLine.objects.filter(reservation_id=reservation.pk).order_by("pk"):
        item = line.line_item.removeprefix(f"{reservation.model}, ")
        entry = BillLine(item, line.quantity, line.amount_nanousd)
        found.setdefault(line.revision, []).append(entry)
    return found


def _added(lines: list[BillLine], changes: list[BillLine]) -> list[BillLine]:
    """The bill with the changes added, in its order; what comes to nothing is left out."""
    sums: dict[str, tuple[int, int]] = {}
    for line in (*lines, *changes):
        quantity, amount = sums.get(line.item, (0, 0))
        sums[line.item] = (quantity + line.quantity, amount + line.amount_nanousd)
    # A charge of nothing still has its first line, as a bill does.
    left = {item: each for item, each in sums.items() if any(each)} or dict(list(sums.items())[:1])
    return [BillLine(item, *each) for item, each in left.items()]
