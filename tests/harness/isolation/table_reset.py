"""
The database between two tests that commit, as the migrations left it.

Django's own `flush` empties every table there is and then makes all permissions anew, which takes longer than
most tests; and what migrations put there, such as the roles, is gone after the first test. Here the tables
that have rows are emptied, and what the migrations put there is put back if a test changed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import connection, transaction

Rows = list[tuple[Any, ...]]


@cache
def tables() -> Tables:
    """Those of this process. First asked for before anything is committed."""
    return Tables()


class Tables:
    def __init__(self) -> None:
        with connection.cursor() as cursor:
            names = connection.introspection.django_table_names(only_existing=True, include_views=False)
            found = {name: _rows_of(cursor, name) for name in sorted(names)}
        self._migrated = {name: rows for name, rows in found.items() if rows}
        self._others = [name for name, rows in found.items() if not rows]
        self._which_have_rows = " UNION ALL ".join(
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {_quoted(name)})" for name in self._others
        )

    def restore(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            self._wait_for_others(cursor)
            changed = {n: rows for n, rows in self._migrated.items() if _rows_of(cursor, n) != rows}
            cursor.execute(self._which_have_rows)
            stale = [name for (name,) in cursor.fetchall()] + list(changed)
            if not stale:
                return
            with triggers_disabled(cursor, stale):
                for name in stale:
                    cursor.execute(f"DELETE FROM {_quoted(name)}")
                for name, rows in changed.items():
                    places = ", ".join(["%s"] * len(rows[0]))
                    cursor.executemany(f"INSERT INTO {_quoted(name)} VALUES ({places})", rows)

    def _wait_for_others(self, cursor: Any) -> None:
        """A session whose process was killed may still be about to commit. SQLite has one writer anyway."""
        if connection.vendor == "postgresql":
            cursor.execute(f"LOCK TABLE {', '.join(map(_quoted, self._others))} IN ACCESS EXCLUSIVE MODE")


@contextmanager
def triggers_disabled(cursor: Any, tables: list[str]) -> Iterator[None]:
    """Append-only tables refuse to be emptied."""
    if connection.vendor == "postgresql":
        # Neither triggers nor references are looked at, until the transaction ends. For superusers alone.
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        return
    places = ", ".join(["%s"] * len(tables))
    cursor.execute(
        f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ({places})", tables
    )
    triggers = cursor.fetchall()
    for name, _ in triggers:
        cursor.execute(f"DROP TRIGGER {_quoted(name)}")
    yield
    for _, statement in triggers:
        cursor.execute(statement)


def _rows_of(cursor: Any, name: str) -> Rows:
    cursor.execute(f"SELECT * FROM {_quoted(name)} ORDER BY 1")
    return cursor.fetchall()  # type: ignore[no-any-return]


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
