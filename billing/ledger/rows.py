"""
The rows that one batch has read and locked: what decisions are made by.

Ids are 32 hexadecimal digits here: hashing and comparing `UUID` objects is slow enough to show. Both stores
answer with JSON objects whose keys are the fields below; `stores.columns` says where each value is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from billing.prices.card import PriceCard
from billing.prices.price import Quantities

NULL = Raw(b"null")


@dataclass(slots=True)
class NeededRows:
    """Which rows a batch must see."""

    organizations: set[str] = field(default_factory=set)
    projects: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    reservations: set[str] = field(default_factory=set)
    # Whether the reservations' bounds and usage are needed too.
    quantities: bool = False


class AccountRow(Struct):
    organization_id: str
    granted: int
    held: int
    settled: int


class KeyRow(Struct):
    id: str
    project_id: str
    # Revoked or suspended: it does not matter which.
    is_stopped: bool
    expires_at: datetime | None
    digest: str


class ProjectRow(Struct):
    id: str
    organization_id: str
    is_archived: bool


class PeriodRow(Struct):
    starts_at: datetime
    held: int = 0
    settled: int = 0


class CapRow(Struct):
    id: int
    organization_id: str
    project_id: str | None
    key_id: str | None
    period: str
    limit: int
    # What it counts in the periods that are not over.
    counted: list[PeriodRow] | None

    @property
    def scope(self) -> str:
        if self.key_id:
            return "key"
        return "project" if self.project_id else "organization"

    def covers(self, project_id: str, key_id: str) -> bool:
        return (self.project_id is None or self.project_id == project_id) and (
            self.key_id is None or self.key_id == key_id
        )


class MeterRow(Struct):
    key_id: str
    live_holds: int
    window_starts_at: datetime
    window_requests: int


class ReservationRow(Struct):
    id: str
    organization_id: str
    project_id: str
    key_id: str
    model: str
    choices: int
    state: str
    version_id: str
    reserved: int
    charged: int | None
    loss: int
    ended_by: str
    admitted_at: datetime
    dispatched_at: datetime | None
    lease_expires_at: datetime
    unknown_at: datetime | None
    # Read where `NeededRows.quantities` says so: an ordinary settlement needs neither.
    bounds: Raw = NULL
    used: Raw = NULL


class CardRow(Struct):
    id: str
    card: PriceCard


def quantities_in(stored: Raw) -> Quantities | None:
    """The quantities that a row has as JSON, or None for null."""
    found: Quantities | None = _decode_quantities(stored)
    return found


_decode_quantities = msgspec.json.Decoder(Quantities | None).decode


class RowsRead(Struct):
    """The rows as a store answers with them. PostgreSQL's list of nothing is null."""

    now: datetime
    caps: list[CapRow] | None
    meters: list[MeterRow] | None
    projects: list[ProjectRow] | None
    keys: list[KeyRow] | None
    reservations: list[ReservationRow] | None


@dataclass(slots=True)
class LockedRows:
    """The rows that a batch has read, where decisions find them, and the time at which they were read."""

    now: datetime
    accounts: dict[str, AccountRow]
    caps: dict[str, list[CapRow]]
    periods: dict[tuple[int, datetime], PeriodRow]
    meters: dict[str, MeterRow]
    projects: dict[str, ProjectRow]
    keys: dict[str, KeyRow]
    reservations: dict[str, ReservationRow]
    # The price cards of the reservations, by the ids of their versions.
    cards: dict[str, PriceCard] = field(default_factory=dict)


def locked_rows(accounts: list[AccountRow], read: RowsRead, now: datetime) -> LockedRows:
    """Index the rows that a store has read by the ids that decisions know."""
    rows = LockedRows(
        now=now,
        accounts={account.organization_id: account for account in accounts},
        caps={},
        periods={},
        meters={meter.key_id: meter for meter in read.meters or ()},
        projects={project.id: project for project in read.projects or ()},
        keys={key.id: key for key in read.keys or ()},
        reservations={reservation.id: reservation for reservation in read.reservations or ()},
    )
    for cap in sorted(read.caps or (), key=lambda cap: cap.id):
        rows.caps.setdefault(cap.organization_id, []).append(cap)
        for period in cap.counted or ():
            rows.periods[cap.id, period.starts_at] = period
    return rows
