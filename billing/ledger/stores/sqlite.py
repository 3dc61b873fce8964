"""
The ledger's store on SQLite. The file has one writer at a time, so there is nothing else to lock.

`billing.ledger.stores.statements` has the SQL that both stores share. Ids and times are stored as Django
stores them: 32 hexadecimal digits, and UTC as text without a zone.
"""

# ruff: noqa: S608 - made of names of columns and parameters alone

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.json import encode

from billing.ledger.changes import Changes, TouchedReservations
from billing.ledger.rows import AccountRow, CardRow, LockedRows, NeededRows, RowsRead, locked_rows
from billing.ledger.stores import statements
from billing.ledger.stores.columns import Column


class SqliteSyntax:
    """How SQLite writes what the ledger's statements need."""

    json_array = "json_group_array"

    def stored(self, column: Column) -> str:
        if column.type == "timestamptz":
            return f"{column.sql} || '+00:00'"
        if column.type == "bool":
            return f"json(CASE WHEN {column.sql} THEN 'true' ELSE 'false' END)"
        return f"json({column.sql})" if column.type == "json" else column.sql

    def json_object(self, fields: dict[str, str]) -> str:
        pairs = (f"'{name}', {sql}" for name, sql in fields.items())
        return f"json_object({', '.join(pairs)})"

    def select(self, fields: dict[str, str]) -> str:
        return f"{self.json_object(fields)} AS json_row"

    def rows(self, fields: dict[str, str], parameter: str) -> str:
        taken = (f"{_extracted(name, type_)} AS {name}" for name, type_ in fields.items())
        return f"(SELECT {', '.join(taken)} FROM json_each({parameter})) AS d"


def _extracted(name: str, type_: str) -> str:
    value = f"json_extract(value, '$.{name}')"
    # 2026-01-31T12:00:00.5Z is stored as 2026-01-31 12:00:00.5.
    return f"replace(rtrim({value}, 'Z'), 'T', ' ')" if type_ == "timestamptz" else value


def _all(rows: str) -> str:
    return f"SELECT json_group_array(json(json_row)) FROM ({rows})"


SYNTAX = SqliteSyntax()


def _in(parameter: str) -> str:
    """One of the ids in a parameter, which are one JSON value: the text does not depend on how many."""
    return f"IN (SELECT value FROM json_each({parameter}))"


CREATE_ACCOUNTS = f"""
INSERT OR IGNORE INTO billing_account (organization_id, granted_nanousd, held_nanousd, settled_nanousd)
SELECT id, 0, 0, 0 FROM organization_organization WHERE id {_in(":organizations")}
"""
_METERS = statements.read_meters(
    SYNTAX, keys="SELECT value FROM json_each(:keys)", reservations=_in(":reservations")
)


def _read_statement(*, with_quantities: bool) -> str:
    reservations = statements.read_reservations(
        SYNTAX, reservations=_in(":reservations"), with_quantities=with_quantities
    )
    # One statement: each gives up the interpreter's lock, which a busy event loop is slow to return.
    return f"""
SELECT ({_all(statements.read_accounts(SYNTAX, organizations=_in(":organizations")))}), json_object(
    'now', :now || '+00:00',
    'caps', ({_all(statements.read_caps(SYNTAX, organizations=_in(":organizations"), now=":now"))}),
    'meters', ({_all(_METERS)}),
    'projects', ({_all(statements.read_projects(SYNTAX, projects=_in(":projects")))}),
    'keys', ({_all(statements.read_keys(SYNTAX, keys=_in(":keys")))}),
    'reservations', ({_all(reservations)})
)
"""


READ = _read_statement(with_quantities=False)
READ_WITH_QUANTITIES = _read_statement(with_quantities=True)
READ_CARDS = _all(statements.read_cards(SYNTAX, versions=_in(":versions")))
WRITES = {
    name: statements.write_statement(SYNTAX, name, rows=":rows", now=":now", lease=":lease")
    for name in statements.WRITES
}

_decode_accounts = msgspec.json.Decoder(list[AccountRow]).decode
_decode_rows = msgspec.json.Decoder(RowsRead).decode
_decode_cards = msgspec.json.Decoder(list[CardRow]).decode


def stored(moment: datetime) -> str:
    """As Django stores a time in SQLite."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))


def json_ids(ids: Collection[str]) -> str:
    """A JSON array of ids, for a parameter."""
    return encode(ids).decode()


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

    def _execute(self, statement: str, values: dict[str, str]) -> list[tuple[Any, ...]]:
        # A plain cursor: Django's would rewrite the placeholders.
        cursor = sqlite3.Connection.cursor(self.connection)
        cursor.row_factory = None
        return sqlite3.Cursor.execute(cursor, statement, values).fetchall()

    # --- reading -------------------------------------------------------------------------------------

    def read(self, needs: NeededRows, *, wait: bool) -> LockedRows:
        rows = self._read(needs)
        if missing := needs.organizations - rows.accounts.keys():
            self._execute(CREATE_ACCOUNTS, {"organizations": json_ids(missing)})
            rows = self._read(needs)
        return rows

    def _read(self, needs: NeededRows) -> LockedRows:
        # One machine, so this is the database's clock as well.
        now = datetime.now(UTC)
        values = {
            "now": stored(now),
            "organizations": json_ids(needs.organizations),
            "keys": json_ids(needs.keys),
            "projects": json_ids(needs.projects),
            "reservations": json_ids(needs.reservations),
        }
        ((accounts, rows),) = self._execute(READ_WITH_QUANTITIES if needs.quantities else READ, values)
        return locked_rows(_decode_accounts(accounts), _decode_rows(rows), now)

    def read_cards(self, versions: Collection[str]) -> list[CardRow]:
        ((found,),) = self._execute(READ_CARDS, {"versions": json_ids(list(versions))})
        return _decode_cards(found)

    # --- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> Callable[[], TouchedReservations]:
        times = {"now": stored(changes.now), "lease": stored(changes.lease_expires_at)}
        for name, rows in changes.rows_by_statement().items():
            self._execute(WRITES[name], {**times, "rows": encode(rows).decode()})
        written = TouchedReservations(
            dispatched=self._touch("dispatched", changes.dispatched_rows(), times),
            alive=self._touch("heartbeats", changes.heartbeat_rows(), times),
        )
        return lambda: written

    def _touch(self, name: str, rows: list[dict[str, Any]], times: dict[str, str]) -> set[str]:
        """Write, and return the ids of the reservations that were found."""
        if not rows:
            return set()
        touched = self._execute(WRITES[name], {**times, "rows": encode(rows).decode()})
        return {reservation_id for (reservation_id,) in touched}
