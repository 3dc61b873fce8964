"""
The ledger's store on PostgreSQL: one round trip to read a batch, one to write it.

`billing.ledger.stores.statements` has the SQL that both stores share, and says why it is as it is.
"""

# ruff: noqa: S608 - made of names of columns and parameters alone

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from functools import cache
from typing import Any

import msgspec
import psycopg
from msgspec.json import encode

from billing.ledger.changes import Changes, TouchedReservations
from billing.ledger.rows import AccountRow, CardRow, LockedRows, NeededRows, RowsRead, locked_rows
from billing.ledger.stores import statements
from billing.ledger.stores.columns import Column
from gateway_site.database.libpq_pipeline import Pipeline, Reply


class PostgresSyntax:
    """How PostgreSQL writes what the ledger's statements need."""

    json_array = "json_agg"

    def stored(self, column: Column) -> str:
        return f"encode(uuid_send({column.sql}), 'hex')" if column.type == "uuid" else column.sql

    def json_object(self, fields: dict[str, str]) -> str:
        # A row as JSON takes the server half of the time of json_build_object.
        return f"(SELECT o FROM (SELECT {self.select(fields)}) AS o)"

    def select(self, fields: dict[str, str]) -> str:
        return ", ".join(f"{sql} AS {name}" for name, sql in fields.items())

    def rows(self, fields: dict[str, str], parameter: str) -> str:
        record = ", ".join(f"{name} {type_}" for name, type_ in fields.items())
        return f"json_to_recordset({parameter}::json) AS d({record})"


def _all(rows: str) -> str:
    """All the rows of a statement as one JSON value: a list, or null."""
    return f"SELECT json_agg(every_row) FROM ({rows}) AS every_row"


SYNTAX = PostgresSyntax()
_ORGANIZATIONS, _KEYS, _PROJECTS, _RESERVATIONS = (f"= ANY(${number}::uuid[])" for number in range(1, 5))

# The lock of everything else, always first and always in this order. A statement of its own: what the next
# one reads must be read after it. NO KEY, so that a foreign key that points at the row does not wait.
LOCK_ACCOUNTS = _all(
    statements.read_accounts(SYNTAX, organizations=_ORGANIZATIONS)
    + " ORDER BY billing_account.organization_id FOR NO KEY UPDATE"
)
LOCK_ACCOUNTS_NOW = LOCK_ACCOUNTS.replace("FOR NO KEY UPDATE", "FOR NO KEY UPDATE NOWAIT")
CREATE_ACCOUNTS = """
INSERT INTO billing_account (organization_id, granted_nanousd, held_nanousd, settled_nanousd)
SELECT id, 0, 0, 0 FROM organization_organization WHERE id = ANY($1::uuid[]) ORDER BY id
ON CONFLICT DO NOTHING
"""
# SHARE, so that a revocation or an archive waits for the batch, and nothing is admitted after it returned.
# Ordered by the column, which an `id` alone is not: that is the text it is read as.
READ_PROJECTS = (
    f"{statements.read_projects(SYNTAX, projects=_PROJECTS)} ORDER BY organization_project.id FOR SHARE"
)
READ_KEYS = f"{statements.read_keys(SYNTAX, keys=_KEYS)} ORDER BY organization_projectkey.id FOR SHARE"
_METERS = statements.read_meters(SYNTAX, keys="SELECT unnest($2::uuid[])", reservations=_RESERVATIONS)


def _read_statement(*, with_quantities: bool) -> str:
    reservations = statements.read_reservations(
        SYNTAX, reservations=_RESERVATIONS, with_quantities=with_quantities
    )
    # The clock after the account's lock, so that waiting for it does not make the time stale.
    return f"""
SELECT json_build_object(
    'now', clock_timestamp(),
    'caps', ({_all(statements.read_caps(SYNTAX, organizations=_ORGANIZATIONS, now="now()"))}),
    'meters', ({_all(_METERS)}),
    'projects', ({_all(READ_PROJECTS)}),
    'keys', ({_all(READ_KEYS)}),
    'reservations', ({_all(reservations)})
)::text
"""


READ = _read_statement(with_quantities=False)
READ_WITH_QUANTITIES = _read_statement(with_quantities=True)
READ_CARDS = _all(statements.read_cards(SYNTAX, versions="= ANY($1::uuid[])"))


@cache
def write_statement(names: tuple[str, ...]) -> str:
    """One statement that does all of these writes. There are few combinations, and each is prepared once."""
    parts = []
    for number, name in enumerate(names, 3):
        statement = statements.write_statement(
            SYNTAX, name, rows=f"${number}", now="$1::timestamptz", lease="$2::timestamptz"
        )
        parts.append(f"{name} AS ({statement})")
    # What no part has a use for must be used all the same.
    return f"WITH {', '.join(parts)} SELECT $1::timestamptz, $2::timestamptz"


def _touch_statement(name: str) -> str:
    """A write with the ids of the reservations that it found as its answer: $1 is a time, $2 the rows."""
    time = "$1::timestamptz"
    statement = statements.write_statement(SYNTAX, name, rows="$2", now=time, lease=time)
    return f"WITH touched AS ({statement}) SELECT json_agg(replace(id::text, '-', '')) FROM touched"


WRITE_HEARTBEATS = _touch_statement("heartbeats")
WRITE_DISPATCHED = _touch_statement("dispatched")

_decode_accounts = msgspec.json.Decoder(list[AccountRow]).decode
_decode_rows = msgspec.json.Decoder(RowsRead).decode
_decode_cards = msgspec.json.Decoder(list[CardRow]).decode
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
        """A transaction whose BEGIN travels with the reads, and its COMMIT with the writes."""
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

    def read(self, needs: NeededRows, *, wait: bool) -> LockedRows:
        if not self._is_ours:
            # psycopg begins somebody else's transaction with the first statement that it sends itself, and
            # without one the locks would be gone at once.
            self._connection.execute("SELECT 1")
        rows = self._read(needs, wait)
        if missing := needs.organizations - rows.accounts.keys():
            self._pipeline.queue(CREATE_ACCOUNTS, array(missing))
            self._pipeline.deliver()
            # From the start: what was read of these organizations was read without their lock.
            rows = self._read(needs, wait)
        return rows

    def _read(self, needs: NeededRows, wait: bool) -> LockedRows:
        organizations = array(needs.organizations)
        locked = self._pipeline.queue(LOCK_ACCOUNTS if wait else LOCK_ACCOUNTS_NOW, organizations)
        read = self._pipeline.queue(
            READ_WITH_QUANTITIES if needs.quantities else READ,
            organizations,
            array(needs.keys),
            array(needs.projects),
            array(needs.reservations),
        )
        self._pipeline.deliver()
        accounts = _decode_accounts(locked.value) if locked.value else []
        assert read.value is not None  # noqa: S101 - a SELECT without FROM has one row
        rows = _decode_rows(read.value)
        return locked_rows(accounts, rows, rows.now.astimezone(UTC))

    def read_cards(self, versions: Collection[str]) -> list[CardRow]:
        read = self._pipeline.queue(READ_CARDS, array(versions))
        self._pipeline.deliver()
        return _decode_cards(read.value) if read.value else []

    # --- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> Callable[[], TouchedReservations]:
        now = changes.now.isoformat().encode()
        lease = changes.lease_expires_at.isoformat().encode()
        if rows := changes.rows_by_statement():
            self._pipeline.queue(write_statement(tuple(rows)), now, lease, *map(encode, rows.values()))
        dispatched = alive = None
        if changes.dispatched:
            dispatched = self._pipeline.queue(WRITE_DISPATCHED, now, encode(changes.dispatched_rows()))
        if changes.heartbeats:
            alive = self._pipeline.queue(WRITE_HEARTBEATS, lease, encode(changes.heartbeat_rows()))
        if not self._is_ours:
            self._pipeline.deliver()
        return lambda: TouchedReservations(alive=_ids_in(alive), dispatched=_ids_in(dispatched))


def _ids_in(reply: Reply | None) -> set[str]:
    return _decode_ids(reply.value) if reply and reply.value else set()
