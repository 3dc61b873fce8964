from typing import Any

from django.db import migrations

from gateway_site.database.append_only import POSTGRESQL_FUNCTION, AppendOnly

TABLE = "billing_reservation"
# What was promised may not change either: the hold, its price, whose it is.
FORBIDDEN = """
OLD.state IN ('settled', 'released', 'written_off') OR OLD.reserved_nanousd <> NEW.reserved_nanousd
OR OLD.organization_id <> NEW.organization_id OR OLD.api_key_id <> NEW.api_key_id
OR OLD.admitted_at <> NEW.admitted_at OR (OLD.state = 'unknown' AND NEW.state IN ('held', 'released'))
"""


def guard(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        # `refuse_change` is called only when the condition holds, so an ordinary update pays next to nothing.
        for statement in (
            POSTGRESQL_FUNCTION,
            f"CREATE TRIGGER reservation_ends_once BEFORE UPDATE ON {TABLE} FOR EACH ROW WHEN ({FORBIDDEN})"
            " EXECUTE FUNCTION refuse_change()",
            f"CREATE TRIGGER reservation_stays BEFORE DELETE ON {TABLE}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()",
        ):
            schema_editor.execute(statement, params=None)
    else:
        for name, verb, condition in (
            ("reservation_ends_once", "UPDATE", f"WHEN {FORBIDDEN}"),
            ("reservation_stays", "DELETE", ""),
        ):
            schema_editor.execute(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {TABLE} FOR EACH ROW {condition}"
                f" BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only once it has ended'); END"
            )


def release(apps: Any, schema_editor: Any) -> None:
    on = f" ON {TABLE}" if schema_editor.connection.vendor == "postgresql" else ""
    for name in ("reservation_ends_once", "reservation_stays"):
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("organization", "0002_audit_append_only")]

    operations = [
        AppendOnly("CreditGrant"),
        AppendOnly("CostLine"),
        migrations.RunPython(guard, release),
    ]
