# ruff: noqa: S608 - made of names of columns alone
import hashlib
import json
import uuid
from typing import Any

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models
from django.db.models import Min, Q

from gateway_site.database.append_only import (
    POSTGRESQL_FUNCTION,
    AppendOnly,
    NeverReplaced,
    TableGuard,
    statements_to_guard,
    statements_to_keep,
    statements_to_let_go,
    statements_to_release,
    unique_columns,
)

TABLE = "billing_reservation"
ENDS_ONCE = "reservation_ends_once"
PRICES = ("prompt", "completion", "cached", "image", "request")
OBSERVED = ("prompt", "completion", "cached", "images")

EARLIER_FORBIDDEN = """
OLD.state IN ('settled', 'released', 'written_off') OR OLD.reserved_nanousd <> NEW.reserved_nanousd
OR OLD.organization_id <> NEW.organization_id OR OLD.api_key_id <> NEW.api_key_id
OR OLD.admitted_at <> NEW.admitted_at OR (OLD.state = 'unknown' AND NEW.state IN ('held', 'released'))
"""
# What was promised may not change either: whose it is, its price. The hold changes with the state alone.
FORBIDDEN = """
OLD.state IN ('settled', 'released', 'written_off')
OR OLD.organization_id <> NEW.organization_id OR OLD.api_key_id <> NEW.api_key_id
OR OLD.admitted_at <> NEW.admitted_at OR OLD.price_version_id <> NEW.price_version_id
OR (OLD.state = NEW.state AND OLD.reserved_nanousd <> NEW.reserved_nanousd)
OR (OLD.state = 'unknown' AND NEW.state = 'held')
"""


class Unguarded(TableGuard):
    """Drop the triggers of a table, so that its rows can be filled and its columns changed."""

    def statements_forwards(self, vendor: str, model: Any) -> list[str]:
        table = model._meta.db_table
        return [
            *statements_to_release(vendor, table),
            *statements_to_let_go(vendor, table),
            *_drop_reservation_triggers(vendor, table),
        ]

    def statements_backwards(self, vendor: str, model: Any) -> list[str]:
        return _guards(vendor, model, EARLIER_FORBIDDEN)


class Guarded(TableGuard):
    """Create the triggers of a table again, which SQLite drops with every change of its columns."""

    def statements_forwards(self, vendor: str, model: Any) -> list[str]:
        return _guards(vendor, model, FORBIDDEN)

    def statements_backwards(self, vendor: str, model: Any) -> list[str]:
        return Unguarded(self.model_name).statements_forwards(vendor, model)


def _guards(vendor: str, model: Any, forbidden: str) -> list[str]:
    table = model._meta.db_table
    kept = statements_to_keep(vendor, table, unique_columns(model))
    if table != TABLE:
        return [*statements_to_guard(vendor, table), *kept]
    if vendor == "postgresql":
        # `refuse_change` is called only when the condition holds: an ordinary update pays next to nothing.
        return [
            POSTGRESQL_FUNCTION,
            f"CREATE TRIGGER {ENDS_ONCE} BEFORE UPDATE ON {TABLE} FOR EACH ROW WHEN ({forbidden})"
            " EXECUTE FUNCTION refuse_change()",
            f"CREATE TRIGGER reservation_stays BEFORE DELETE ON {TABLE}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()",
            *kept,
        ]
    refuse = f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only once it has ended'); END"
    return [
        f"CREATE TRIGGER {ENDS_ONCE} BEFORE UPDATE ON {TABLE} FOR EACH ROW WHEN {forbidden} {refuse}",
        f"CREATE TRIGGER reservation_stays BEFORE DELETE ON {TABLE} FOR EACH ROW {refuse}",
        *kept,
    ]


def _drop_reservation_triggers(vendor: str, table: str) -> list[str]:
    if table != TABLE:
        return []
    on = f" ON {TABLE}" if vendor == "postgresql" else ""
    return [f"DROP TRIGGER IF EXISTS {name}{on}" for name in (ENDS_ONCE, "reservation_stays")]


def checksum(card: dict[str, Any]) -> str:
    """The digest of a card, as the card computes it."""
    return hashlib.sha256(json.dumps(card, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def flat_card(prices: dict[str, int]) -> dict[str, Any]:
    """A card of these prices. Those that were filled in where nobody had given one are left out."""
    given = dict(prices)
    if given["cached"] == given["prompt"]:
        del given["cached"]
    for name in ("image", "request"):
        if not given[name]:
            del given[name]
    return {"rates": {name: {"picousd": picousd} for name, picousd in sorted(given.items())}}


def fill(apps: Any, schema_editor: Any) -> None:
    """A version for each price that a request was admitted at, and what requests used from their lines."""
    versions = apps.get_model("billing", "PriceVersion").objects
    reservations = apps.get_model("billing", "Reservation").objects
    columns = [f"{name}_price_picousd" for name in PRICES]
    groups = reservations.values_list("model", *columns).annotate(first=Min("admitted_at")).order_by("first")
    for model, *prices, first in groups:
        card = flat_card(dict(zip(PRICES, prices, strict=True)))
        version = versions.create(
            pk=uuid.uuid4(),
            model=model,
            valid_from=first,
            source="prices of an earlier release",
            checksum=checksum(card),
            card_json=card,
        )
        admitted_at_it = dict(zip(columns, prices, strict=True))
        reservations.filter(model=model, **admitted_at_it).update(price_version_id=version.pk)
    is_postgresql = schema_editor.connection.vendor == "postgresql"
    for statement in POSTGRESQL_FILL if is_postgresql else SQLITE_FILL:
        schema_editor.execute(statement, params=None)


_OBJECT = ", ".join(f"'{name}', {{{name}}}" for name in OBSERVED)
_OBSERVED_OBJECT = _OBJECT.format(**{name: f"observed_{name}" for name in OBSERVED})
_LINES_OBJECT = _OBJECT.format(
    prompt="SUM(CASE WHEN l.line_item LIKE '%, prompt' OR l.line_item LIKE '%, cached prompt'"
    " THEN l.quantity ELSE 0 END)",
    completion="SUM(CASE WHEN l.line_item LIKE '%, completion' THEN l.quantity ELSE 0 END)",
    cached="SUM(CASE WHEN l.line_item LIKE '%, cached prompt' THEN l.quantity ELSE 0 END)",
    images="SUM(CASE WHEN l.line_item LIKE '%, image' THEN l.quantity ELSE 0 END)",
)
# An amount that was found out later has no quantities.
_HAS_QUANTITIES = "SUM(CASE WHEN l.line_item LIKE '%, reconciled' THEN 1 ELSE 0 END) = 0"
POSTGRESQL_FILL = [
    f"UPDATE {TABLE} SET used = jsonb_build_object({_OBSERVED_OBJECT}) WHERE observed_prompt IS NOT NULL",
    f"""UPDATE {TABLE} r SET used = s.used FROM (
        SELECT l.reservation_id, jsonb_build_object({_LINES_OBJECT}) AS used FROM billing_costline l
        GROUP BY l.reservation_id HAVING {_HAS_QUANTITIES}) s
    WHERE s.reservation_id = r.id AND r.state = 'settled'""",
    f"""UPDATE billing_costline l SET admitted_at = r.admitted_at FROM {TABLE} r
    WHERE r.id = l.reservation_id""",
]
SQLITE_FILL = [
    f"UPDATE {TABLE} SET used = json_object({_OBSERVED_OBJECT}) WHERE observed_prompt IS NOT NULL",
    f"""UPDATE {TABLE} SET used = s.used FROM (
        SELECT l.reservation_id, json_object({_LINES_OBJECT}) AS used FROM billing_costline l
        GROUP BY l.reservation_id HAVING {_HAS_QUANTITIES}) s
    WHERE s.reservation_id = {TABLE}.id AND state = 'settled'""",
    f"""UPDATE billing_costline SET admitted_at = r.admitted_at FROM {TABLE} r
    WHERE r.id = billing_costline.reservation_id""",
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_never_replaced")]

    operations = [
        migrations.CreateModel(
            name="PriceVersion",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("model", models.CharField(max_length=200)),
                ("valid_from", models.DateTimeField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("source", models.CharField(max_length=200)),
                ("checksum", models.CharField(max_length=64)),
                ("card_json", models.JSONField()),
            ],
            options={
                "verbose_name": "price version",
                "indexes": [
                    models.Index(
                        fields=["model", "-valid_from", "-created_at"], name="price_version_in_force"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(condition=~Q(model=""), name="price_version_model_not_empty")
                ],
            },
        ),
        AppendOnly("PriceVersion"),
        NeverReplaced("PriceVersion"),
        Unguarded("Reservation"),
        Unguarded("CostLine"),
        migrations.AddField(
            "reservation",
            "price_version",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.priceversion",
            ),
        ),
        migrations.AddField("reservation", "bounds", models.JSONField(default=dict), preserve_default=False),
        migrations.AddField("reservation", "used", models.JSONField(null=True)),
        migrations.AddField(
            "reservation",
            "ended_by",
            models.CharField(
                blank=True,
                choices=[
                    ("complete", "the answer was complete"),
                    ("client", "the client left, or read nothing"),
                    ("backend", "the backend refused, failed or was cut off"),
                    ("deadline", "the deadline passed"),
                    ("policy", "a policy refused it"),
                    ("shutdown", "the gateway was stopped"),
                    ("crash", "the gateway\N{RIGHT SINGLE QUOTATION MARK}s process was lost"),
                ],
                default="",
                max_length=8,
            ),
        ),
        migrations.AddField("costline", "admitted_at", models.DateTimeField(null=True)),
        migrations.AddField("costline", "revision", models.PositiveSmallIntegerField(default=0)),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AlterField(
            "reservation",
            "price_version",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.priceversion",
            ),
        ),
        migrations.AlterField("costline", "admitted_at", models.DateTimeField()),
        migrations.AlterField(
            "reservation",
            "basis",
            models.CharField(
                blank=True,
                choices=[
                    ("usage", "reported usage"),
                    ("observed", "counted here"),
                    ("estimated", "the prompt alone, as counted here"),
                    ("checkpoint", "last checkpoint before a crash"),
                    ("reconciled", "found out later"),
                ],
                default="",
                max_length=10,
            ),
        ),
        migrations.RemoveConstraint("reservation", "reservation_observed_whole_or_not_at_all"),
        migrations.RemoveConstraint("reservation", "reservation_shape_follows_state"),
        migrations.RemoveConstraint("costline", "cost_line_once"),
        migrations.RemoveConstraint("costline", "cost_line_not_negative"),
        migrations.RemoveConstraint("dailycost", "daily_cost_not_negative"),
        *(migrations.RemoveField("reservation", f"{name}_price_picousd") for name in PRICES),
        *(migrations.RemoveField("reservation", f"observed_{name}") for name in OBSERVED),
        migrations.AddConstraint(
            "reservation",
            models.CheckConstraint(
                name="reservation_shape_follows_state",
                condition=Q(state="held", charged_nanousd=None, resolved_at=None, basis="", unknown_at=None)
                | Q(
                    state="unknown",
                    charged_nanousd=None,
                    resolved_at=None,
                    basis="",
                    unknown_at__isnull=False,
                    dispatched_at__isnull=False,
                )
                | Q(
                    state="settled",
                    charged_nanousd__isnull=False,
                    resolved_at__isnull=False,
                    basis__in=["usage", "observed", "estimated", "checkpoint", "reconciled"],
                )
                | Q(
                    state__in=["released", "written_off"],
                    charged_nanousd=0,
                    resolved_at__isnull=False,
                    basis="",
                ),
            ),
        ),
        migrations.AddConstraint(
            "costline",
            models.UniqueConstraint(name="cost_line_once", fields=["reservation", "line_item", "revision"]),
        ),
        migrations.AddConstraint(
            "costline",
            models.CheckConstraint(
                name="cost_line_not_negative",
                condition=Q(revision__gt=0) | Q(quantity__gte=0, amount_nanousd__gte=0),
            ),
        ),
        migrations.AddConstraint(
            "dailycost",
            models.CheckConstraint(name="daily_cost_not_negative", condition=Q(lines__gte=0)),
        ),
        Guarded("Reservation"),
        Guarded("CostLine"),
    ]
