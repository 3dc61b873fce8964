"""Rows that only grow: sums by day, added to in the transaction that writes what they are sums of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, models

Cell = tuple[Any, ...]


class DailySums:
    """
    Adds to a table whose rows are unique by the fields of a `cell` and otherwise hold `sums`.

    In one statement a row, so that processes may add to the same day at once and none is lost.
    """

    def __init__(self, model: type[models.Model], *, cell: Sequence[str], sums: Sequence[str]) -> None:
        fields = {field.name: field for field in model._meta.local_concrete_fields}
        self._cell = [fields[name] for name in cell]
        self.sums = sums
        keys = [str(field.column) for field in self._cell]
        table, columns = model._meta.db_table, [*keys, *sums]
        added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in sums)
        self._statement = (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"  # noqa: S608
            f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {added}"
        )

    def add(self, gains: Mapping[Cell, Sequence[int]]) -> None:
        """Add what each cell gains, in the order of the sums."""
        # In one order, so that processes wait for each other and never in a circle.
        rows = [[*self._prepared(cell), *gain] for cell, gain in sorted(gains.items())]
        with connection.cursor() as cursor:
            cursor.executemany(self._statement, rows)

    def _prepared(self, cell: Cell) -> list[Any]:
        pairs = zip(self._cell, cell, strict=True)
        return [field.get_db_prep_save(value, connection) for field, value in pairs]
