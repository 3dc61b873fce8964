"""
The ledger's statements for PostgreSQL: one round trip to read a batch, one to write it.

This is the hot path, so the SQL is written by hand, with every value bound. Rows travel as arrays in
PostgreSQL's own text form: one statement for any number of rows, always the same text, so it is
prepared once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import psycopg

from billing.snapshot import (
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

# The lock of everything else, always first and always in this order. NO KEY, so that a foreign key that
# points at the row does not wait.
LOCK_ACCOUNTS = """
SELECT replace(organization_id::text, '-', ''), granted_nanousd, held_nanousd, settled_nanousd
FROM billing_account WHERE organization_id = ANY(%s::uuid[]) ORDER BY organization_id FOR NO KEY UPDATE
"""
CREATE_ACCOUNTS = """
INSERT INTO billing_account (organization_id, granted_nanousd, held_nanousd, settled_nanousd)
SELECT id, 0, 0, 0 FROM organization_organization WHERE id = ANY(%s::uuid[]) ORDER BY id
ON CONFLICT DO NOTHING
"""
# After the locks, so that waiting for one does not make the time stale.
READ_CLOCK = "SELECT clock_timestamp()"
READ_CAPS = """
SELECT c.id, replace(c.organization_id::text, '-', ''), replace(c.project_id::text, '-', ''),
       replace(c.api_key_id::text, '-', ''), c.period, c.limit_nanousd,
       p.starts_at, p.held_nanousd, p.settled_nanousd
FROM billing_spendingcap c
LEFT JOIN billing_capperiod p ON p.cap_id = c.id AND (p.ends_at IS NULL OR p.ends_at > now())
WHERE c.organization_id = ANY(%s::uuid[]) ORDER BY c.id
"""
READ_METERS = """
SELECT replace(api_key_id::text, '-', ''), live_holds, window_starts_at, window_requests
FROM billing_keymeter WHERE api_key_id = ANY(%s::uuid[])
"""
# SHARE, so that a revocation or an archive waits for the batch, and nothing is admitted after it returned.
READ_PROJECTS = """
SELECT replace(id::text, '-', ''), replace(organization_id::text, '-', ''), archived_at IS NOT NULL
FROM organization_project WHERE id = ANY(%s::uuid[]) ORDER BY id FOR SHARE
"""
READ_KEYS = """
SELECT replace(id::text, '-', ''), replace(project_id::text, '-', ''),
       revoked_at IS NOT NULL OR suspended_at IS NOT NULL, expires_at
FROM organization_projectkey WHERE id = ANY(%s::uuid[]) ORDER BY id FOR SHARE
"""
# With the meters of these reservations' keys: the caller of a settlement does not know the key.
READ_RESERVATIONS = """
SELECT replace(r.id::text, '-', ''), replace(r.organization_id::text, '-', ''),
       replace(r.project_id::text, '-', ''), replace(r.api_key_id::text, '-', ''), r.model, r.state,
       r.prompt_price_picousd, r.cached_price_picousd, r.completion_price_picousd, r.image_price_picousd,
       r.request_price_picousd, r.reserved_nanousd, r.charged_nanousd, r.operator_loss_nanousd,
       r.observed_prompt, r.observed_cached, r.observed_completion, r.observed_images,
       r.admitted_at, r.dispatched_at IS NOT NULL, r.lease_expires_at, r.unknown_at,
       m.live_holds, m.window_starts_at, m.window_requests
FROM billing_reservation r LEFT JOIN billing_keymeter m ON m.api_key_id = r.api_key_id
WHERE r.id = ANY(%s::uuid[])
"""

WRITE_ACCOUNTS = """
UPDATE billing_account a
SET held_nanousd = a.held_nanousd + d.held, settled_nanousd = a.settled_nanousd + d.settled
FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS d(id, held, settled) WHERE a.organization_id = d.id
"""
CREATE_PERIODS = """
INSERT INTO billing_capperiod (cap_id, starts_at, ends_at, ceiling_nanousd, held_nanousd, settled_nanousd)
SELECT d.*, 0, 0 FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::bigint[]) AS d
ON CONFLICT (cap_id, starts_at) DO NOTHING
"""
WRITE_PERIODS = """
UPDATE billing_capperiod p
SET held_nanousd = p.held_nanousd + d.held, settled_nanousd = p.settled_nanousd + d.settled
FROM unnest(%s::bigint[], %s::timestamptz[], %s::bigint[], %s::bigint[]) AS d(cap, starts_at, held, settled)
WHERE p.cap_id = d.cap AND p.starts_at = d.starts_at
"""
WRITE_METERS = """
INSERT INTO billing_keymeter (api_key_id, live_holds, window_starts_at, window_requests)
SELECT * FROM unnest(%s::uuid[], %s::int[], %s::timestamptz[], %s::int[])
ON CONFLICT (api_key_id) DO UPDATE SET live_holds = EXCLUDED.live_holds,
    window_starts_at = EXCLUDED.window_starts_at, window_requests = EXCLUDED.window_requests
"""
# No condition on the state: it was read under the account's lock, and the trigger refuses what has ended.
WRITE_RESOLVED = """
UPDATE billing_reservation r
SET state = d.state, basis = d.basis, charged_nanousd = d.charged, operator_loss_nanousd = d.loss,
    unknown_at = CASE WHEN d.state = 'unknown' THEN %s ELSE r.unknown_at END,
    resolved_at = CASE WHEN d.state = 'unknown' THEN NULL ELSE %s END
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bigint[], %s::bigint[])
    AS d(id, state, basis, charged, loss)
WHERE r.id = d.id
"""
# A lease never outlives the request's deadline by more than one lease, however long the heart beats.
WRITE_HEARTBEATS = """
UPDATE billing_reservation r
SET lease_expires_at = LEAST(%s, r.deadline_at) + make_interval(secs => %s),
    observed_prompt = COALESCE(d.prompt, r.observed_prompt),
    observed_cached = COALESCE(d.cached, r.observed_cached),
    observed_completion = COALESCE(d.completion, r.observed_completion),
    observed_images = COALESCE(d.images, r.observed_images)
FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS d(id, prompt, cached, completion, images)
WHERE r.id = d.id AND r.state = 'held' RETURNING replace(r.id::text, '-', '')
"""
WRITE_DISPATCHED = """
UPDATE billing_reservation SET dispatched_at = COALESCE(dispatched_at, %s)
WHERE id = ANY(%s::uuid[]) AND state = 'held' RETURNING replace(id::text, '-', '')
"""
CREATE_RESERVATIONS = """
INSERT INTO billing_reservation (
    id, organization_id, project_id, api_key_id, model, choices, prompt_price_picousd, cached_price_picousd,
    completion_price_picousd, image_price_picousd, request_price_picousd, reserved_nanousd, dispatched_at,
    deadline_at, state, basis, operator_loss_nanousd, admitted_at, lease_expires_at)
SELECT d.id, d.organization, d.project, d.key, d.model, d.choices, d.prompt, d.cached, d.completion, d.image,
       d.request, d.reserved, CASE WHEN d.is_dispatched THEN c.now END,
       c.now + make_interval(secs => d.deadline), 'held', '', 0, c.now, c.now + make_interval(secs => %s)
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::uuid[], %s::text[], %s::int[], %s::bigint[], %s::bigint[],
            %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bool[], %s::int[])
     AS d(id, organization, project, key, model, choices, prompt, cached, completion, image, request,
          reserved, is_dispatched, deadline),
     (SELECT %s::timestamptz AS now) AS c
"""
CREATE_LINES = """
INSERT INTO billing_costline
    (reservation_id, organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd)
SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::uuid[], %s::date[], %s::text[], %s::bigint[],
                     %s::bigint[])
"""
CREATE_UNROLLED = """
INSERT INTO billing_unrolledcost
    (organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd, lines)
SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::date[], %s::text[], %s::bigint[], %s::bigint[],
                     %s::int[])
"""


def array(values: Iterable[str]) -> str:
    """An array of ids, times or plain words in PostgreSQL's text form."""
    return "{" + ",".join(values) + "}"


def number_array(values: Iterable[int | date | bool]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def nullable_array(values: Iterable[int | str | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def text_array(values: Iterable[str]) -> str:
    return "{" + ",".join([_quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


class PostgresStore:
    """Reads and writes batches over one connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # BEGIN travels with the reads and COMMIT with the writes, which a transaction of psycopg's own
        # would not do when something fails.
        try:
            with self.connection.pipeline():
                self.connection.execute("BEGIN")
                yield
                self.connection.execute("COMMIT")
        finally:
            # Does nothing after a commit.
            if not self.connection.closed:
                self.connection.rollback()

    def _send(self, statement: str, *values: object) -> psycopg.Cursor[Any]:
        # Not Django's cursor, which would write the values into the text of the statement. Binary results are
        # read by psycopg in C, where Django has put a reader of its own for times as text.
        cursor = psycopg.Cursor(self.connection)
        return cursor.execute(statement, values, prepare=True, binary=True)

    # --- reading -------------------------------------------------------------------------------------

    def read(self, needs: Needs, *, wait: bool) -> Snapshot:
        snapshot = self._read(needs, wait)
        if missing := needs.organizations - snapshot.accounts.keys():
            self._send(CREATE_ACCOUNTS, array(missing))
            # From the start: what was read of these organizations was read without their lock.
            snapshot = self._read(needs, wait)
        return snapshot

    def _read(self, needs: Needs, wait: bool) -> Snapshot:
        organizations = array(needs.organizations)
        lock = LOCK_ACCOUNTS if wait else LOCK_ACCOUNTS + "NOWAIT"
        accounts = self._send(lock, organizations) if needs.organizations else None
        clock = self._send(READ_CLOCK)
        caps = self._send(READ_CAPS, organizations) if needs.organizations else None
        meters = self._send(READ_METERS, array(needs.keys)) if needs.keys else None
        projects = self._send(READ_PROJECTS, array(needs.projects)) if needs.projects else None
        keys = self._send(READ_KEYS, array(needs.keys)) if needs.keys else None
        found = self._send(READ_RESERVATIONS, array(needs.reservations)) if needs.reservations else None
        snapshot = Snapshot(
            now=_only(clock),
            accounts={row[0]: AccountRow(*row[1:]) for row in accounts or ()},
            caps={},
            periods={},
            meters={row[0]: MeterRow(*row[1:]) for row in meters or ()},
            projects={row[0]: ProjectRow(*row[1:]) for row in projects or ()},
            keys={row[0]: KeyRow(*row[1:]) for row in keys or ()},
            reservations={},
        )
        for row in caps or ():
            add_cap(snapshot, row)
        for row in found or ():
            add_reservation(snapshot, row)
        return snapshot

    # --- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> Callable[[], Written]:
        self._write_counters(changes)
        self._write_reservations(changes)
        self._write_costs(changes)
        return self._touch(changes)

    def _write_counters(self, changes: Changes) -> None:
        accounts = {place: delta for place, delta in changes.accounts.items() if delta.held or delta.settled}
        if accounts:
            deltas = accounts.values()
            self._send(
                WRITE_ACCOUNTS,
                array(accounts),
                number_array(delta.held for delta in deltas),
                number_array(delta.settled for delta in deltas),
            )
        if changes.new_periods:
            new = changes.new_periods.items()
            self._send(
                CREATE_PERIODS,
                number_array(cap for (cap, _), _ in new),
                array(starts_at.isoformat() for (_, starts_at), _ in new),
                nullable_array(period.ends_at and period.ends_at.isoformat() for _, period in new),
                number_array(period.ceiling for _, period in new),
            )
        if changes.periods:
            counted = changes.periods.items()
            self._send(
                WRITE_PERIODS,
                number_array(cap for (cap, _), _ in counted),
                array(starts_at.isoformat() for (_, starts_at), _ in counted),
                number_array(delta.held for _, delta in counted),
                number_array(delta.settled for _, delta in counted),
            )
        if changes.meters:
            meters = changes.meters.values()
            self._send(
                WRITE_METERS,
                array(changes.meters),
                number_array(meter.live for meter in meters),
                array(meter.window.isoformat() for meter in meters),
                number_array(meter.requests for meter in meters),
            )

    def _write_reservations(self, changes: Changes) -> None:
        if changes.resolved:
            resolved = changes.resolved.values()
            self._send(
                WRITE_RESOLVED,
                changes.now,
                changes.now,
                array(changes.resolved),
                array(each.state for each in resolved),
                text_array(each.basis for each in resolved),
                nullable_array(each.charged for each in resolved),
                number_array(each.loss for each in resolved),
            )
        if changes.reservations:
            new = changes.reservations
            self._send(
                CREATE_RESERVATIONS,
                changes.lease_seconds,
                array(each.id for each in new),
                array(each.organization_id for each in new),
                array(each.project_id for each in new),
                array(each.key_id for each in new),
                text_array(each.model for each in new),
                number_array(each.choices for each in new),
                number_array(each.price.prompt for each in new),
                number_array(each.price.cached for each in new),
                number_array(each.price.completion for each in new),
                number_array(each.price.image for each in new),
                number_array(each.price.request for each in new),
                number_array(each.reserved for each in new),
                number_array(each.is_dispatched for each in new),
                number_array(each.deadline_seconds for each in new),
                changes.now,
            )

    def _write_costs(self, changes: Changes) -> None:
        if not changes.lines:
            return
        lines = changes.lines
        self._send(
            CREATE_LINES,
            array(line.reservation_id for line in lines),
            array(line.organization_id for line in lines),
            array(line.project_id for line in lines),
            array(line.key_id for line in lines),
            number_array(line.day for line in lines),
            text_array(line.line_item for line in lines),
            number_array(line.quantity for line in lines),
            number_array(line.amount for line in lines),
        )
        groups, sums = changes.unrolled.keys(), changes.unrolled.values()
        self._send(
            CREATE_UNROLLED,
            array(group[0] for group in groups),
            array(group[1] for group in groups),
            array(group[2] for group in groups),
            number_array(group[3] for group in groups),
            text_array(group[4] for group in groups),
            number_array(quantity for quantity, _, _ in sums),
            number_array(amount for _, amount, _ in sums),
            number_array(count for _, _, count in sums),
        )

    def _touch(self, changes: Changes) -> Callable[[], Written]:
        beats = dispatches = None
        if changes.dispatched:
            dispatches = self._send(WRITE_DISPATCHED, changes.now, array(changes.dispatched))
        if changes.heartbeats:
            seen = changes.heartbeats.values()
            beats = self._send(
                WRITE_HEARTBEATS,
                changes.now,
                changes.lease_seconds,
                array(changes.heartbeats),
                nullable_array(each and each.prompt for each in seen),
                nullable_array(each and each.cached for each in seen),
                nullable_array(each and each.completion for each in seen),
                nullable_array(each and each.images for each in seen),
            )
        # Read later: asking now would make a round trip of its own before COMMIT.
        return lambda: Written(
            alive={row[0] for row in beats or ()}, dispatched={row[0] for row in dispatches or ()}
        )


def _only(cursor: psycopg.Cursor[Any]) -> datetime:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    moment: datetime = row[0]
    return moment.astimezone(UTC)
