"""
Tables that can be added to and never changed, held by triggers on both databases.

Triggers hold against every statement of an ordinary role. On PostgreSQL a superuser can set
`session_replication_role`, and the table's owner can disable or drop a trigger; on SQLite whoever can write
to the file can drop one. What is changed in the audit trail that way is found by `organization.audit.chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.migrations.operations.base import Operation
from django.db.models import Model, UniqueConstraint

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


def statements_to_keep(vendor: str, table: str, unique: Sequence[Sequence[str]]) -> list[str]:
    """SQL that refuses what the triggers of `statements_to_guard` miss: TRUNCATE, and REPLACE in SQLite."""
    if vendor == "postgresql":
        return [
            POSTGRESQL_FUNCTION,
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
        ]
    # INSERT OR REPLACE and UPDATE OR REPLACE delete the rows in their way, and without `recursive_triggers`
    # ask no trigger. Columns that are null are equal to nothing, here as in the index.
    in_the_way = " OR ".join(
        "(" + " AND ".join(f'"{column}" = NEW."{column}"' for column in columns) + ")" for columns in unique
    )
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    keys = {column for columns in unique for column in columns}
    moved = " OR ".join(f'NEW."{column}" IS NOT OLD."{column}"' for column in sorted(keys))
    taken = f"EXISTS (SELECT 1 FROM {table} WHERE {in_the_way})"  # noqa: S608 - names of our own
    return [
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {taken} {refuse}",
        f"CREATE TRIGGER {table}_no_move BEFORE UPDATE OF {', '.join(sorted(keys))} ON {table}"
        f" WHEN {moved} {refuse}",
    ]


def statements_to_let_go(vendor: str, table: str) -> list[str]:
    if vendor == "postgresql":
        return [f"DROP TRIGGER IF EXISTS {table}_no_truncate ON {table}"]
    return [f"DROP TRIGGER IF EXISTS {table}_no_{name}" for name in ("replace", "move")]


class TableGuard(Operation):
    """Migration operation that adds triggers to a table. Nothing that the ORM can see changes."""

    reversible = True

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models stay as they are."""

    def statements_forwards(self, vendor: str, model: type[Model]) -> list[str]:
        raise NotImplementedError

    def statements_backwards(self, vendor: str, model: type[Model]) -> list[str]:
        raise NotImplementedError

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        for statement in self.statements_forwards(schema_editor.connection.vendor, model):
            schema_editor.execute(statement)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        for statement in self.statements_backwards(schema_editor.connection.vendor, model):
            schema_editor.execute(statement)


class AppendOnly(TableGuard):
    """Migration after which rows of the model's table are neither updated nor deleted."""

    def statements_forwards(self, vendor: str, model: type[Model]) -> list[str]:
        return statements_to_guard(vendor, model._meta.db_table)

    def statements_backwards(self, vendor: str, model: type[Model]) -> list[str]:
        return statements_to_release(vendor, model._meta.db_table)

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"


class NeverReplaced(TableGuard):
    """Migration after which no row of the model's table is replaced, and the table is never truncated."""

    def statements_forwards(self, vendor: str, model: type[Model]) -> list[str]:
        return statements_to_keep(vendor, model._meta.db_table, unique_columns(model))

    def statements_backwards(self, vendor: str, model: type[Model]) -> list[str]:
        return statements_to_let_go(vendor, model._meta.db_table)

    def describe(self) -> str:
        return f"Refuse to replace rows of {self.model_name}"


def unique_columns(model: type[Model]) -> list[list[str]]:
    """Each set of columns by which a new row can conflict with an old one."""
    meta = model._meta
    single = [[str(field.column)] for field in meta.concrete_fields if field.unique]
    constraints = [each for each in meta.constraints if isinstance(each, UniqueConstraint)]
    return single + [[str(meta.get_field(name).column) for name in each.fields] for each in constraints]  # type: ignore[union-attr]
