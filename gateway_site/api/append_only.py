"""Tables that can be added to and never changed, held by a trigger on both databases."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only'; END $$
"""


def statements_to_guard(vendor: str, table: str) -> list[str]:
    """SQL that makes every UPDATE and DELETE of a row in `table` fail."""
    if vendor == "postgresql":
        return [
            POSTGRESQL_FUNCTION,
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()",
        ]
    return [
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    ]


def statements_to_release(vendor: str, table: str) -> list[str]:
    if vendor == "postgresql":
        return [f"DROP TRIGGER IF EXISTS {table}_append_only ON {table}"]
    return [f"DROP TRIGGER IF EXISTS {table}_no_{verb}" for verb in ("update", "delete")]


class AppendOnly(Operation):
    """Migration operation: from here on, rows of the model's table stay as they were written."""

    reversible = True

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Nothing that the ORM can see changes."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for statement in statements_to_guard(
            schema_editor.connection.vendor, self._table(app_label, to_state)
        ):
            schema_editor.execute(statement)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        table = self._table(app_label, from_state)
        for statement in statements_to_release(schema_editor.connection.vendor, table):
            schema_editor.execute(statement)

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"

    def _table(self, app_label: str, state: Any) -> str:
        return str(state.apps.get_model(app_label, self.model_name)._meta.db_table)
