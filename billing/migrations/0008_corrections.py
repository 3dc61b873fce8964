import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models
from django.db.models import F, Q

from gateway_site.database.append_only import AppendOnly, NeverReplaced


def reference(to: str) -> models.ForeignKey:  # type: ignore[type-arg]
    """A column that names a row which the writer has read and locked already."""
    return models.ForeignKey(
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to=to,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0007_cost_line_time_index"),
        ("organization", "0002_audit_append_only"),
    ]

    operations = [
        migrations.CreateModel(
            name="Correction",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("model", models.CharField(max_length=200)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("actor", models.CharField(max_length=250)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "organization",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="organization.organization",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.priceversion",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(starts_at__lt=F("ends_at")), name="correction_period_not_empty"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="CostAdjustment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("revision", models.PositiveSmallIntegerField()),
                ("charged_before_nanousd", models.BigIntegerField()),
                ("charged_after_nanousd", models.BigIntegerField()),
                ("uncollected_nanousd", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "correction",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="adjustments",
                        to="billing.correction",
                    ),
                ),
                ("from_version", reference("billing.priceversion")),
                ("organization", reference("organization.organization")),
                (
                    "reservation",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="adjustments",
                        to="billing.reservation",
                    ),
                ),
                ("to_version", reference("billing.priceversion")),
            ],
            options={
                "verbose_name": "cost adjustment",
                "constraints": [
                    models.UniqueConstraint(fields=["reservation", "revision"], name="cost_adjustment_once"),
                    models.CheckConstraint(
                        condition=Q(
                            revision__gte=1,
                            charged_before_nanousd__gte=0,
                            charged_after_nanousd__gte=0,
                            uncollected_nanousd__gte=0,
                        ),
                        name="cost_adjustment_amounts_possible",
                    ),
                ],
            },
        ),
        AppendOnly("Correction"),
        NeverReplaced("Correction"),
        AppendOnly("CostAdjustment"),
        NeverReplaced("CostAdjustment"),
    ]
