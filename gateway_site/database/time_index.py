"""An index on the time by which a table grows, as each database does it best."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.indexes import BrinIndex
from django.db.backends.ddl_references import Statement
from django.db.models import Index, Model


class TimeIndex(Index):
    """
    Index of a column whose values come almost in order.

    On PostgreSQL it notes the least and the greatest value of each megabyte of the table, so that an insert
    pays next to nothing; new megabytes are noted by autovacuum and are read in full until then. SQLite has
    no such index, and gets an ordinary one.
    """

    def create_sql(self, model: type[Model], schema_editor: Any, using: str = "", **kwargs: Any) -> Statement:
        if schema_editor.connection.vendor != "postgresql":
            return super().create_sql(model, schema_editor, using, **kwargs)
        ranges = BrinIndex(fields=self.fields, name=self.name, autosummarize=True)
        return ranges.create_sql(model, schema_editor, using, **kwargs)
