"""What was charged again under another price card: a run, and the difference for each request."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from billing.models.prices import MODEL_ID_LENGTH, PriceVersion
from billing.models.reservations import Reservation
from organization.models import Organization

REASON_LENGTH = 500
ACTOR_LENGTH = 250


class Correction(models.Model):
    """
    One run over the settled requests of a model in a period, which charged them by other prices.

    Append-only. A run that finds nothing to change leaves no row.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    model = models.CharField(max_length=MODEL_ID_LENGTH)
    # Requests that were admitted at `starts_at` or later, and before `ends_at`.
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    # The version that all of them are charged by; none: that in force when each was admitted.
    version = models.ForeignKey(PriceVersion, models.PROTECT, related_name="+", null=True, blank=True)
    # The only organization that it was made for; none: for all.
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+", null=True, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    actor = models.CharField(max_length=ACTOR_LENGTH)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="correction_period_not_empty", condition=Q(starts_at__lt=F("ends_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.starts_at:%Y-%m-%d %H:%M} to {self.ends_at:%Y-%m-%d %H:%M}"


class CostAdjustment(models.Model):
    """
    What one correction changed in one request's charge. Append-only, and so is the request's reservation.

    A request's charge is that of its reservation and the differences of all its adjustments. The lines of
    the same revision sum to the difference.
    """

    id = models.BigAutoField(primary_key=True)
    correction = models.ForeignKey(Correction, models.PROTECT, related_name="adjustments")
    # No constraints, for the same reason as on CostLine.
    organization = models.ForeignKey(
        Organization, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    reservation = models.ForeignKey(
        Reservation, models.PROTECT, related_name="adjustments", db_constraint=False, db_index=False
    )
    # 1 for the first; the settlement is revision 0.
    revision = models.PositiveSmallIntegerField()
    from_version = models.ForeignKey(
        PriceVersion, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    to_version = models.ForeignKey(
        PriceVersion, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    charged_before_nanousd = models.BigIntegerField()
    charged_after_nanousd = models.BigIntegerField()
    # What the request costs by the new card beyond what there was credit for: the operator's loss.
    uncollected_nanousd = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "cost adjustment"
        constraints = [
            # Two runs at once cannot both change a request.
            models.UniqueConstraint(name="cost_adjustment_once", fields=["reservation", "revision"]),
            models.CheckConstraint(
                name="cost_adjustment_amounts_possible",
                condition=Q(
                    revision__gte=1,
                    charged_before_nanousd__gte=0,
                    charged_after_nanousd__gte=0,
                    uncollected_nanousd__gte=0,
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"revision {self.revision} of {self.reservation_id}"

    @property
    def difference_nanousd(self) -> int:
        return self.charged_after_nanousd - self.charged_before_nanousd
