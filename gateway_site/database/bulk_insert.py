"""Many rows in one statement, sent as one JSON value that the database takes apart itself."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
from django.db import connection, models


class BulkInsert:
    """
    Inserts rows of a model, with their keys unless the database makes those; what is there already stays.

    Rows are anything that has the model's columns as attributes. To adapt each value in Python, and to run a
    statement for each row, took ten times as long, in a thread that shares the interpreter with requests.
    """

    def __init__(self, model: type[models.Model]) -> None:
        self._table = model._meta.db_table
        fields = model._meta.local_concrete_fields
        self._fields = [field for field in fields if not isinstance(field, models.AutoField)]
        self._values = attrgetter(*(field.attname for field in self._fields))
        self._statements: dict[str, str] = {}

    def insert(self, cursor: Any, rows: Sequence[Any]) -> int:
        """Insert the rows and return how many of them are new."""
        statement = self._statements.get(connection.vendor)
        if statement is None:
            statement = self._statements[connection.vendor] = self._statement()
        cursor.execute(statement, [msgspec.json.encode([self._values(row) for row in rows]).decode()])
        inserted: int = cursor.rowcount
        return inserted

    def _statement(self) -> str:
        write, source = _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE
        columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in self._fields)
        values = ", ".join(write(field, index) for index, field in enumerate(self._fields))
        # `WHERE true` is for SQLite, which would take ON CONFLICT for a join otherwise.
        return (
            f"INSERT INTO {self._table} ({columns}) SELECT {values} FROM {source} WHERE true"  # noqa: S608
            " ON CONFLICT DO NOTHING"
        )


def _in_postgresql(field: models.Field[Any, Any], index: int) -> str:
    kind = str(field.db_type(connection))
    if kind == "jsonb":
        return f"line.value -> {index}"
    # A cast to varchar(n) would cut; as text, the column itself refuses what is too long.
    return f"CAST(line.value ->> {index} AS {'text' if kind.startswith('varchar') else kind})"


def _in_sqlite(field: models.Field[Any, Any], index: int) -> str:
    """As Django stores it: ids as 32 digits, times in UTC without a zone."""
    value = f"json_extract(line.value, '$[{index}]')"
    match field.db_type(connection):
        case "char(32)":
            return f"replace({value}, '-', '')"
        case "datetime":
            return f"replace(replace({value}, 'T', ' '), 'Z', '')"
    return value


_POSTGRESQL = (_in_postgresql, "jsonb_array_elements(%s::jsonb) AS line(value)")
_SQLITE = (_in_sqlite, "json_each(%s) AS line")
