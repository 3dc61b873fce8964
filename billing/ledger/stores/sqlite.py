"""
The ledger's statements for SQLite. The file has one writer at a time, so there is nothing else to lock.

Same steps as `store_postgresql`. Ids and times are stored as Django stores them: 32 hexadecimal digits,
and UTC as text without a zone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from billing.ledger.snapshot import (
    AccountRow,
    Changes,
    KeyRow,
    MeterRow,
    Needs,
    ProjectRow,
    Snapshot,
    Written,
    add_cap,
    add_reservation,
)


def column(place: int) -> str:
    """What stands at this place in a `row` of json_each."""
    return f"json_extract(row.value, '$[{place}]')"


def columns(count: int) -> str:
    return ", ".join(map(column, range(count)))


# A list travels as one JSON value, so that the statement's text does not depend on its length. So do the rows
# of a request: each statement gives up the interpreter's lock, which a busy event loop is slow to return.
READ_ACCOUNTS = """
SELECT organization_id, granted_nanousd, held_nanousd, settled_nanousd
FROM billing_account WHERE organization_id IN (SELECT value FROM json_each(?))
"""
CREATE_ACCOUNTS = """
INSERT OR IGNORE INTO billing_account (organization_id, granted_nanousd, held_nanousd, settled_nanousd)
SELECT id, 0, 0, 0 FROM organization_organization WHERE id IN (SELECT value FROM json_each(?))
"""
READ_CAPS = """
SELECT c.id, c.organization_id, c.project_id, c.api_key_id, c.period, c.limit_nanousd,
       p.starts_at, p.held_nanousd, p.settled_nanousd
FROM billing_spendingcap c
LEFT JOIN billing_capperiod p ON p.cap_id = c.id AND (p.ends_at IS NULL OR p.ends_at > ?)
WHERE c.organization_id IN (SELECT value FROM json_each(?)) ORDER BY c.id
"""
READ_METERS = """
SELECT api_key_id, live_holds, window_starts_at, window_requests
FROM billing_keymeter WHERE api_key_id IN (SELECT value FROM json_each(?))
"""
READ_PROJECTS = """
SELECT id, organization_id, archived_at IS NOT NULL
FROM organization_project WHERE id IN (SELECT value FROM json_each(?))
"""
READ_KEYS = """
SELECT id, project_id, revoked_at IS NOT NULL OR suspended_at IS NOT NULL, expires_at, digest
FROM organization_projectkey WHERE id IN (SELECT value FROM json_each(?))
"""
READ_RESERVATIONS = """
SELECT r.id, r.organization_id, r.project_id, r.api_key_id, r.model, r.state,
       r.prompt_price_picousd, r.cached_price_picousd, r.completion_price_picousd, r.image_price_picousd,
       r.request_price_picousd, r.reserved_nanousd, r.charged_nanousd, r.operator_loss_nanousd,
       r.observed_prompt, r.observed_cached, r.observed_completion, r.observed_images,
       r.admitted_at, r.dispatched_at IS NOT NULL, r.lease_expires_at, r.unknown_at,
       m.live_holds, m.window_starts_at, m.window_requests
FROM billing_reservation r LEFT JOIN billing_keymeter m ON m.api_key_id = r.api_key_id
WHERE r.id IN (SELECT value FROM json_each(?))
"""

WRITE_ACCOUNTS = """
UPDATE billing_account SET held_nanousd = held_nanousd + ?, settled_nanousd = settled_nanousd + ?
WHERE organization_id = ?
"""
CREATE_PERIODS = """
INSERT OR IGNORE INTO billing_capperiod
    (cap_id, starts_at, ends_at, ceiling_nanousd, held_nanousd, settled_nanousd)
VALUES (?, ?, ?, ?, 0, 0)
"""
WRITE_PERIODS = """
UPDATE billing_capperiod SET held_nanousd = held_nanousd + ?, settled_nanousd = settled_nanousd + ?
WHERE cap_id = ? AND starts_at = ?
"""
WRITE_METERS = """
INSERT INTO billing_keymeter (api_key_id, live_holds, window_starts_at, window_requests)
VALUES (?, ?, ?, ?) ON CONFLICT (api_key_id) DO UPDATE SET live_holds = excluded.live_holds,
    window_starts_at = excluded.window_starts_at, window_requests = excluded.window_requests
"""
WRITE_RESOLVED = f"""
UPDATE billing_reservation SET state = {column(1)}, basis = {column(2)}, charged_nanousd = {column(3)},
    operator_loss_nanousd = {column(4)}, unknown_at = coalesce({column(5)}, unknown_at),
    resolved_at = {column(6)}
FROM json_each(?) AS row WHERE billing_reservation.id = {column(0)}
"""  # noqa: S608
# Not bounded by the deadline, which a step of the clock may have left behind: heartbeats end at the request's
# deadline by the sender's own clock, which does not step.
WRITE_HEARTBEAT = """
UPDATE billing_reservation
SET lease_expires_at = ?,
    observed_prompt = coalesce(?, observed_prompt), observed_cached = coalesce(?, observed_cached),
    observed_completion = coalesce(?, observed_completion), observed_images = coalesce(?, observed_images)
WHERE id = ? AND state = 'held'
"""
WRITE_DISPATCHED = """
UPDATE billing_reservation SET dispatched_at = coalesce(dispatched_at, ?) WHERE id = ? AND state = 'held'
"""
CREATE_RESERVATIONS = f"""
INSERT INTO billing_reservation (
    id, organization_id, project_id, api_key_id, model, choices, prompt_price_picousd, cached_price_picousd,
    completion_price_picousd, image_price_picousd, request_price_picousd, reserved_nanousd, dispatched_at,
    deadline_at, state, basis, operator_loss_nanousd, admitted_at, lease_expires_at)
SELECT {columns(14)}, 'held', '', 0, {column(14)}, {column(15)} FROM json_each(?) AS row
"""  # noqa: S608
CREATE_LINES = f"""
INSERT INTO billing_costline
    (reservation_id, organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd)
SELECT {columns(8)} FROM json_each(?) AS row
"""  # noqa: S608
CREATE_UNROLLED = f"""
INSERT INTO billing_unrolledcost
    (organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd, lines)
SELECT {columns(8)} FROM json_each(?) AS row
"""  # noqa: S608


def stored(moment: datetime | None) -> str | None:
    """As Django stores a time in SQLite."""
    return None if moment is None else str(moment.astimezone(UTC).replace(tzinfo=None))


def loaded(text: str | datetime | None) -> datetime | None:
    # Django may have registered a converter for the column's type on this connection.
    if text is None:
        return None
    moment = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC)


class SqliteStore:
    """Reads and writes batches over one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # IMMEDIATE waits its turn; a transaction that reads first and writes later fails at once when
        # another process has written in between.
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        # A plain cursor: Django's would rewrite the placeholders.
        cursor = sqlite3.Connection.cursor(self.connection)
        cursor.row_factory = None
        return iter(sqlite3.Cursor.execute(cursor, statement, values))

    def _found(self, statement: str, places: set[str]) -> Iterable[tuple[Any, ...]]:
        return self._rows(statement, json.dumps(list(places))) if places else ()

    def _each(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        cursor = sqlite3.Connection.cursor(self.connection)
        sqlite3.Cursor.executemany(cursor, statement, rows)

    def _all_at_once(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            self._rows(statement, msgspec.json.encode(rows).decode())

    # --- reading -------------------------------------------------------------------------------------

    def read(self, needs: Needs, *, wait: bool) -> Snapshot:
        snapshot = self._read(needs)
        if missing := needs.organizations - snapshot.accounts.keys():
            list(self._rows(CREATE_ACCOUNTS, json.dumps(list(missing))))
            snapshot = self._read(needs)
        return snapshot

    def _read(self, needs: Needs) -> Snapshot:
        # One machine, so this is the database's clock as well.
        now = datetime.now(UTC)
        organizations = json.dumps(list(needs.organizations))
        snapshot = Snapshot(
            now=now,
            accounts={row[0]: AccountRow(*row[1:]) for row in self._rows(READ_ACCOUNTS, organizations)},
            caps={},
            periods={},
            meters={
                row[0]: MeterRow(row[1], loaded(row[2]) or now, row[3])
                for row in self._found(READ_METERS, needs.keys)
            },
            projects={
                row[0]: ProjectRow(row[1], bool(row[2])) for row in self._found(READ_PROJECTS, needs.projects)
            },
            keys={
                row[0]: KeyRow(row[1], bool(row[2]), loaded(row[3]), row[4])
                for row in self._found(READ_KEYS, needs.keys)
            },
            reservations={},
        )
        for row in self._rows(READ_CAPS, stored(now), organizations):
            add_cap(snapshot, (*row[:6], loaded(row[6]), *row[7:]))
        for row in self._found(READ_RESERVATIONS, needs.reservations):
            times = (loaded(row[18]), bool(row[19]), loaded(row[20]), loaded(row[21]))
            add_reservation(snapshot, (*row[:18], *times, row[22], loaded(row[23]), row[24]))
        return snapshot

    # --- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> Callable[[], Written]:
        self._write_counters(changes)
        self._write_reservations(changes)
        self._write_costs(changes)
        written = self._touch(changes)
        return lambda: written

    def _write_counters(self, changes: Changes) -> None:
        self._each(
            WRITE_ACCOUNTS, ((delta.held, delta.settled, place) for place, delta in changes.accounts.items())
        )
        self._each(
            CREATE_PERIODS,
            (
                (cap, stored(starts_at), stored(period.ends_at), period.ceiling)
                for (cap, starts_at), period in changes.new_periods.items()
            ),
        )
        self._each(
            WRITE_PERIODS,
            (
                (delta.held, delta.settled, cap, stored(starts_at))
                for (cap, starts_at), delta in changes.periods.items()
            ),
        )
        self._each(
            WRITE_METERS,
            (
                (key, meter.live, stored(meter.window), meter.requests)
                for key, meter in changes.meters.items()
            ),
        )

    def _write_reservations(self, changes: Changes) -> None:
        now = stored(changes.now)
        self._all_at_once(
            WRITE_RESOLVED,
            [
                (
                    each.id,
                    each.state,
                    each.basis,
                    each.charged,
                    each.loss,
                    now if each.state == "unknown" else None,
                    None if each.state == "unknown" else now,
                )
                for each in changes.resolved.values()
            ],
        )
        lease = stored(changes.now + timedelta(seconds=changes.lease_seconds))
        self._all_at_once(
            CREATE_RESERVATIONS,
            [
                (
                    each.id,
                    each.organization_id,
                    each.project_id,
                    each.key_id,
                    each.model,
                    each.choices,
                    each.price.prompt,
                    each.price.cached,
                    each.price.completion,
                    each.price.image,
                    each.price.request,
                    each.reserved,
                    now if each.is_dispatched else None,
                    stored(changes.now + timedelta(seconds=each.deadline_seconds)),
                    now,
                    lease,
                )
                for each in changes.reservations
            ],
        )

    def _write_costs(self, changes: Changes) -> None:
        self._all_at_once(
            CREATE_LINES,
            [
                (
                    line.reservation_id,
                    line.organization_id,
                    line.project_id,
                    line.key_id,
                    line.day.isoformat(),
                    line.line_item,
                    line.quantity,
                    line.amount,
                )
                for line in changes.lines
            ],
        )
        self._all_at_once(
            CREATE_UNROLLED,
            [
                (organization, project, key, day.isoformat(), item, *sums)
                for (organization, project, key, day, item), sums in changes.unrolled.items()
            ],
        )

    def _touch(self, changes: Changes) -> Written:
        written = Written(alive=set(), dispatched=set())
        cursor = sqlite3.Connection.cursor(self.connection)
        execute = sqlite3.Cursor.execute
        for place in changes.dispatched:
            if execute(cursor, WRITE_DISPATCHED, (stored(changes.now), place)).rowcount:
                written.dispatched.add(place)
        lease = stored(changes.now + timedelta(seconds=changes.lease_seconds))
        for place, seen in changes.heartbeats.items():
            observed = (seen.prompt, seen.cached, seen.completion, seen.images) if seen else (None,) * 4
            if execute(cursor, WRITE_HEARTBEAT, (lease, *observed, place)).rowcount:
                written.alive.add(place)
        return written
