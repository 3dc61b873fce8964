"""
The ledger's store on PostgreSQL: one round trip to read a batch, one to write it.

`statements_postgresql` has the SQL, and says why it is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg
from msgspec.json import encode

from billing.ledger.snapshot import (
    AccountRow,
    Changes,
    Delta,
    KeyRow,
    MeterRow,
    Needs,
    ProjectRow,
    Snapshot,
    Written,
    add_cap,
    add_reservation,
)
from billing.ledger.stores.postgresql_statements import (
    CREATE_ACCOUNTS,
    LOCK_ACCOUNTS,
    LOCK_ACCOUNTS_NOW,
    READ,
    WRITE_DISPATCHED,
    WRITE_HEARTBEATS,
    write_statement,
)
from billing.prices.price import Quantities
from gateway_site.database.libpq_pipeline import Pipeline, Reply

Text = str | None
Number = int | None
Time = datetime | None
Cap = tuple[int, str, Text, Text, str, int, Time, Number, Number]
# fmt: off
Reservation = tuple[
    str, str, str, str, str, str, int, int, int, int, int, int, Number, int, Number, Number, Number, Number,
    datetime, bool, datetime, Time, Number, Time, Number,
]
# fmt: on


class Found(msgspec.Struct, array_like=True):
    """What `READ` answers with. Nothing found is null."""

    now: datetime
    caps: list[Cap] | None
    meters: list[tuple[str, int, datetime, int]] | None
    projects: list[tuple[str, str, bool]] | None
    keys: list[tuple[str, str, bool, Time, str]] | None
    reservations: list[Reservation] | None


# What the parts of a group of costs and its sums are called on their way.
UNROLLED = ("organization", "project", "key", "day", "item", "quantity", "amount", "lines")

_decode_accounts = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
_decode_found = msgspec.json.Decoder(Found).decode
_decode_ids = msgspec.json.Decoder(set[str]).decode


def array(values: Iterable[str]) -> bytes:
    """An array of ids in PostgreSQL's text form."""
    return ("{" + ",".join(values) + "}").encode()


class PostgresStore:
    """Reads and writes batches over one connection."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool = False) -> None:
        self._connection = connection
        self._pipeline = Pipeline(connection, prepares=prepares)
        # Whether the transaction is this store's: then what is written travels with its COMMIT.
        self._is_ours = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """BEGIN travels with the reads, and COMMIT with the writes."""
        self._pipeline.queue("BEGIN")
        self._is_ours, is_committed = True, False
        try:
            yield
            self._pipeline.queue("COMMIT")
            self._pipeline.deliver()
            is_committed = True
        finally:
            self._is_ours = False
            if not is_committed:
                self._roll_back()

    def _roll_back(self) -> None:
        self._pipeline.forget()
        self._pipeline.queue("ROLLBACK")
        # The connection may be what is broken.
        with suppress(psycopg.OperationalError):
            self._pipeline.deliver()

    # --- reading -------------------------------------------------------------------------------------

    def read(self, needs: Needs, *, wait: bool) -> Snapshot:
        if not self._is_ours:
            # psycopg begins somebody else's transaction with the first statement that it sends itself, and
            # without one the locks would be gone at once.
            self._connection.execute("SELECT 1")
        snapshot = self._read(needs, wait)
        if missing := needs.organizations - snapshot.accounts.keys():
            self._pipeline.queue(CREATE_ACCOUNTS, array(missing))
            self._pipeline.deliver()
            # From the start: what was read of these organizations was read without their lock.
            snapshot = self._read(needs, wait)
        return snapshot

    def _read(self, needs: Needs, wait: bool) -> Snapshot:
        organizations = array(needs.organizations)
        locked = self._pipeline.queue(LOCK_ACCOUNTS if wait else LOCK_ACCOUNTS_NOW, organizations)
        read = self._pipeline.queue(
            READ, organizations, array(needs.keys), array(needs.projects), array(needs.reservations)
        )
        self._pipeline.deliver()
        accounts = _decode_accounts(locked.value) if locked.value else []
        assert read.value is not None  # noqa: S101 - a SELECT without FROM has one row
        found = _decode_found(read.value)
        snapshot = Snapshot(
            now=found.now.astimezone(UTC),
            accounts={row[0]: AccountRow(*row[1:]) for row in accounts},
            caps={},
            periods={},
            meters={row[0]: MeterRow(*row[1:]) for row in found.meters or ()},
            projects={row[0]: ProjectRow(*row[1:]) for row in found.projects or ()},
            keys={row[0]: KeyRow(*row[1:]) for row in found.keys or ()},
            reservations={},
        )
        for cap in found.caps or ():
            add_cap(snapshot, cap)
        for reservation in found.reservations or ():
            add_reservation(snapshot, reservation)
        return snapshot

    # --- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> Callable[[], Written]:
        now, lease = changes.now.isoformat().encode(), b"%d" % changes.lease_seconds
        if parts := _parts_of(changes):
            self._pipeline.queue(write_statement(tuple(parts)), now, lease, *map(encode, parts.values()))
        dispatched = beaten = None
        if changes.dispatched:
            dispatched = self._pipeline.queue(WRITE_DISPATCHED, now, array(changes.dispatched))
        if changes.heartbeats:
            seen = [{"id": place, **_observed(used)} for place, used in changes.heartbeats.items()]
            beaten = self._pipeline.queue(WRITE_HEARTBEATS, now, lease, encode(seen))
        if not self._is_ours:
            self._pipeline.deliver()
        return lambda: Written(alive=_ids_in(beaten), dispatched=_ids_in(dispatched))


def _ids_in(reply: Reply | None) -> set[str]:
    return _decode_ids(reply.value) if reply and reply.value else set()


def _parts_of(changes: Changes) -> dict[str, Any]:
    """The rows of each part of the statement that writes, without the parts that have none."""
    counted = dict(changes.periods)
    new_periods = []
    for place, period in changes.new_periods.items():
        delta = counted.pop(place, Delta())
        new_periods.append(
            {
                **_period(place, delta),
                "ends_at": period.ends_at,
                "ceiling": period.ceiling,
            }
        )
    parts = {
        "accounts": [
            {"id": place, "held": delta.held, "settled": delta.settled}
            for place, delta in changes.accounts.items()
            if delta.held or delta.settled
        ],
        "new_periods": new_periods,
        "periods": [_period(place, delta) for place, delta in counted.items()],
        "meters": [
            {"id": key, "live": meter.live, "starts_at": meter.window, "requests": meter.requests}
            for key, meter in changes.meters.items()
        ],
        "resolved": list(changes.resolved.values()),
        "reservations": changes.reservations,
        "lines": changes.lines,
        "unrolled": [
            dict(zip(UNROLLED, (*group, *sums), strict=True)) for group, sums in changes.unrolled.items()
        ],
    }
    return {name: part for name, part in parts.items() if part}


def _period(place: tuple[int, datetime], delta: Delta) -> dict[str, Any]:
    return {"cap": place[0], "starts_at": place[1], "held": delta.held, "settled": delta.settled}


def _observed(used: Quantities | None) -> dict[str, int]:
    if used is None:
        return {}
    return {
        "prompt": used.prompt,
        "cached": used.cached,
        "completion": used.completion,
        "images": used.images,
    }
