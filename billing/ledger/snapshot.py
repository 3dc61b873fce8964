"""
What one batch reads, and what it decides to write: the language between decisions and databases.

Ids are 32 hexadecimal digits here: hashing and comparing `UUID` objects is slow enough to show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct

from billing.prices.price import Price, Quantities

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Needs:
    """Which rows a batch must see."""

    organizations: set[str] = field(default_factory=set)
    projects: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    reservations: set[str] = field(default_factory=set)


@dataclass(slots=True)
class AccountRow:
    granted: int
    held: int
    settled: int


@dataclass(slots=True)
class KeyRow:
    project_id: str
    # Revoked or suspended: it does not matter which.
    is_stopped: bool
    expires_at: datetime | None
    digest: str


@dataclass(slots=True)
class ProjectRow:
    organization_id: str
    is_archived: bool


@dataclass(slots=True)
class CapRow:
    id: int
    organization_id: str
    project_id: str | None
    key_id: str | None
    period: str
    limit: int

    @property
    def scope(self) -> str:
        if self.key_id:
            return "key"
        return "project" if self.project_id else "organization"

    def covers(self, project_id: str, key_id: str) -> bool:
        return (self.project_id is None or self.project_id == project_id) and (
            self.key_id is None or self.key_id == key_id
        )


@dataclass(slots=True)
class PeriodRow:
    held: int = 0
    settled: int = 0


@dataclass(slots=True)
class MeterRow:
    live: int
    window: datetime
    requests: int


class ReservationRow(Struct):
    id: str
    organization_id: str
    project_id: str
    key_id: str
    model: str
    state: str
    price: Price
    reserved: int
    charged: int | None
    loss: int
    observed: Quantities | None
    admitted_at: datetime
    is_dispatched: bool
    lease_expires_at: datetime
    unknown_at: datetime | None


@dataclass(slots=True)
class Snapshot:
    now: datetime
    accounts: dict[str, AccountRow]
    caps: dict[str, list[CapRow]]
    periods: dict[tuple[int, datetime], PeriodRow]
    meters: dict[str, MeterRow]
    projects: dict[str, ProjectRow]
    keys: dict[str, KeyRow]
    reservations: dict[str, ReservationRow]


class Resolved(Struct):
    """The new state of one reservation."""

    id: str
    state: str
    basis: str
    charged: int | None
    loss: int


class NewReservation(Struct):
    id: str
    organization_id: str
    project_id: str
    key_id: str
    model: str
    choices: int
    price: Price
    reserved: int
    is_dispatched: bool
    deadline_seconds: int


class NewLine(Struct):
    reservation_id: str
    organization_id: str
    project_id: str
    key_id: str
    day: date
    line_item: str
    quantity: int
    amount: int


@dataclass(slots=True)
class Delta:
    held: int = 0
    settled: int = 0


@dataclass(slots=True)
class NewPeriod:
    ends_at: datetime | None
    ceiling: int


CostGroup = tuple[str, str, str, date, str]


@dataclass(slots=True)
class Changes:
    """Everything that one batch writes. How many rows a field has changes no statement."""

    now: datetime
    lease_seconds: int
    accounts: dict[str, Delta] = field(default_factory=dict)
    periods: dict[tuple[int, datetime], Delta] = field(default_factory=dict)
    new_periods: dict[tuple[int, datetime], NewPeriod] = field(default_factory=dict)
    meters: dict[str, MeterRow] = field(default_factory=dict)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    reservations: list[NewReservation] = field(default_factory=list)
    lines: list[NewLine] = field(default_factory=list)
    # (quantity, amount, lines) of each group of lines.
    unrolled: dict[CostGroup, tuple[int, int, int]] = field(default_factory=dict)
    heartbeats: dict[str, Quantities | None] = field(default_factory=dict)
    dispatched: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Written:
    """Which of the reservations that were to be touched are still held."""

    alive: set[str]
    dispatched: set[str]


def period_of(moment: datetime, period: str) -> tuple[datetime, datetime | None]:
    """Start and end of the day, month or all of time that `moment` is in, in UTC."""
    if period == "total":
        return EPOCH, None
    moment = moment.astimezone(UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day, day + timedelta(days=1)
    month = day.replace(day=1)
    return month, (month + timedelta(days=32)).replace(day=1)


def add_cap(snapshot: Snapshot, row: tuple[Any, ...]) -> None:
    """One row for each cap and current period, or one with nulls for a cap that has none yet."""
    cap = CapRow(*row[:6])
    caps = snapshot.caps.setdefault(cap.organization_id, [])
    if not caps or caps[-1].id != cap.id:
        caps.append(cap)
    if row[6] is not None:
        snapshot.periods[cap.id, row[6]] = PeriodRow(row[7], row[8])


def add_reservation(snapshot: Snapshot, row: tuple[Any, ...]) -> None:
    found = ReservationRow(
        id=row[0],
        organization_id=row[1],
        project_id=row[2],
        key_id=row[3],
        model=row[4],
        state=row[5],
        price=Price(prompt=row[6], cached=row[7], completion=row[8], image=row[9], request=row[10]),
        reserved=row[11],
        charged=row[12],
        loss=row[13],
        observed=None
        if row[14] is None
        else Quantities(prompt=row[14], cached=row[15], completion=row[16], images=row[17]),
        admitted_at=row[18],
        is_dispatched=row[19],
        lease_expires_at=row[20],
        unknown_at=row[21],
    )
    snapshot.reservations[found.id] = found
    if row[22] is not None and found.key_id not in snapshot.meters:
        snapshot.meters[found.key_id] = MeterRow(*row[22:25])
