"""What one batch has decided to write. Both stores write these rows as JSON objects, by field name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from msgspec import Struct

from billing.ledger.rows import MeterRow
from billing.prices.price import Quantities


class AccountDelta(Struct):
    organization_id: str
    held: int = 0
    settled: int = 0


class PeriodDelta(Struct):
    cap_id: int
    starts_at: datetime
    held: int = 0
    settled: int = 0


class NewPeriod(Struct):
    cap_id: int
    starts_at: datetime
    ends_at: datetime | None
    ceiling: int
    # What is counted in it at once.
    held: int = 0
    settled: int = 0


class ResolvedReservation(Struct):
    """The new state of one reservation."""

    reservation_id: str
    state: str
    basis: str
    ended_by: str
    reserved: int
    charged: int | None
    loss: int
    # None keeps what heartbeats have reported.
    used: Quantities | None


class NewReservation(Struct):
    id: str
    organization_id: str
    project_id: str
    key_id: str
    model: str
    choices: int
    version_id: str
    bounds: Quantities
    reserved: int
    is_dispatched: bool
    deadline_at: datetime


class NewLine(Struct):
    reservation_id: str
    organization_id: str
    project_id: str
    key_id: str
    admitted_at: datetime
    day: date
    line_item: str
    quantity: int
    amount: int


class NewUnrolled(Struct):
    """The sums of a batch's lines of one key, day and line item."""

    organization_id: str
    project_id: str
    key_id: str
    day: date
    line_item: str
    quantity: int = 0
    amount: int = 0
    lines: int = 0


# Organization, project, key, day, line item.
CostGroup = tuple[str, str, str, date, str]


@dataclass(slots=True)
class Changes:
    """Everything that one batch writes. How many rows a field has changes no statement."""

    now: datetime
    lease_expires_at: datetime
    accounts: dict[str, AccountDelta] = field(default_factory=dict)
    periods: dict[tuple[int, datetime], PeriodDelta] = field(default_factory=dict)
    new_periods: dict[tuple[int, datetime], NewPeriod] = field(default_factory=dict)
    meters: dict[str, MeterRow] = field(default_factory=dict)
    resolved: dict[str, ResolvedReservation] = field(default_factory=dict)
    reservations: list[NewReservation] = field(default_factory=list)
    lines: list[NewLine] = field(default_factory=list)
    unrolled: dict[CostGroup, NewUnrolled] = field(default_factory=dict)
    heartbeats: dict[str, Quantities | None] = field(default_factory=dict)
    dispatched: set[str] = field(default_factory=set)

    def rows_by_statement(self) -> dict[str, list[Any]]:
        """The rows for each of `stores.statements.WRITES`, without the statements that have none."""
        rows: dict[str, list[Any]] = {
            "accounts": [delta for delta in self.accounts.values() if delta.held or delta.settled],
            "new_periods": list(self.new_periods.values()),
            "periods": list(self.periods.values()),
            "meters": list(self.meters.values()),
            "resolved": list(self.resolved.values()),
            "reservations": self.reservations,
            "lines": self.lines,
            "unrolled": list(self.unrolled.values()),
        }
        return {name: each for name, each in rows.items() if each}

    def heartbeat_rows(self) -> list[dict[str, Any]]:
        return [
            {"reservation_id": reservation_id, "used": seen}
            for reservation_id, seen in self.heartbeats.items()
        ]

    def dispatched_rows(self) -> list[dict[str, Any]]:
        return [{"reservation_id": reservation_id} for reservation_id in self.dispatched]


@dataclass(slots=True)
class TouchedReservations:
    """Which of the reservations that were to be touched are still held."""

    alive: set[str]
    dispatched: set[str]
