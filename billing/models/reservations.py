"""One row for each request that was ever admitted."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import models
from django.db.models import F, Q

from billing.money import Price, Quantities
from organization.models import NAME_LENGTH, Organization, Project, ProjectKey


class Reservation(models.Model):
    """
    One request's hold on credit, for all its completions, and how it ended.

    A trigger refuses to change one that has ended, and to delete any.
    """

    class State(models.TextChoices):
        HELD = "held"
        UNKNOWN = "unknown"
        SETTLED = "settled"
        RELEASED = "released"
        WRITTEN_OFF = "written_off"

    class Basis(models.TextChoices):
        USAGE = "usage", "reported usage"
        OBSERVED = "observed", "counted here"
        CHECKPOINT = "checkpoint", "last checkpoint before a crash"
        RECONCILED = "reconciled", "found out later"

    # The id of the request, as in its X-Request-ID: one request has one hold.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The ledger has read and locked these three rows in the transaction that inserts this one, so a
    # foreign key check here would be paid three times per request for what is known already.
    organization = models.ForeignKey(
        Organization, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        ProjectKey, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    model = models.CharField(max_length=NAME_LENGTH)
    choices = models.IntegerField(default=1)

    prompt_price_picousd = models.BigIntegerField()
    cached_price_picousd = models.BigIntegerField()
    completion_price_picousd = models.BigIntegerField()
    image_price_picousd = models.BigIntegerField()
    request_price_picousd = models.BigIntegerField()

    state = models.CharField(max_length=11, choices=State)
    basis = models.CharField(max_length=10, choices=Basis, blank=True, default="")
    reserved_nanousd = models.BigIntegerField()
    charged_nanousd = models.BigIntegerField(null=True)
    # What the request cost beyond its hold, or might have cost when it was written off.
    operator_loss_nanousd = models.BigIntegerField(default=0)

    observed_prompt = models.BigIntegerField(null=True)
    observed_cached = models.BigIntegerField(null=True)
    observed_completion = models.BigIntegerField(null=True)
    observed_images = models.BigIntegerField(null=True)

    admitted_at = models.DateTimeField()
    dispatched_at = models.DateTimeField(null=True)
    lease_expires_at = models.DateTimeField()
    deadline_at = models.DateTimeField()
    unknown_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="reservation_state_known",
                condition=Q(state__in=["held", "unknown", "settled", "released", "written_off"]),
            ),
            models.CheckConstraint(
                name="reservation_amounts_possible",
                condition=Q(reserved_nanousd__gte=0, operator_loss_nanousd__gte=0)
                & (
                    Q(charged_nanousd=None)
                    | Q(charged_nanousd__gte=0, charged_nanousd__lte=F("reserved_nanousd"))
                ),
            ),
            # A charge is known exactly when the request has ended; only `settled` may cost something.
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
                    basis__in=["usage", "observed", "checkpoint", "reconciled"],
                )
                | Q(
                    state__in=["released", "written_off"],
                    charged_nanousd=0,
                    resolved_at__isnull=False,
                    basis="",
                ),
            ),
            models.CheckConstraint(
                name="reservation_observed_whole_or_not_at_all",
                condition=Q(
                    observed_prompt=None, observed_cached=None, observed_completion=None, observed_images=None
                )
                | Q(
                    observed_prompt__gte=0,
                    observed_cached__gte=0,
                    observed_completion__gte=0,
                    observed_images__gte=0,
                ),
            ),
        ]
        indexes = [
            # For the sweeper and the console. Few rows are open, and a heartbeat changes neither column,
            # so it touches no index at all.
            models.Index(
                name="reservation_open",
                fields=["organization", "admitted_at"],
                condition=Q(state__in=["held", "unknown"]),
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def is_open(self) -> bool:
        return self.state in (self.State.HELD, self.State.UNKNOWN)

    @property
    def price(self) -> Price:
        return Price(
            self.prompt_price_picousd,
            self.cached_price_picousd,
            self.completion_price_picousd,
            self.image_price_picousd,
            self.request_price_picousd,
        )

    @property
    def observed(self) -> Quantities | None:
        if (
            self.observed_prompt is None
            or self.observed_cached is None
            or self.observed_completion is None
            or self.observed_images is None
        ):
            return None
        return Quantities(
            self.observed_prompt, self.observed_cached, self.observed_completion, self.observed_images
        )

    def lease_has_expired(self, moment: datetime) -> bool:
        return self.state == self.State.HELD and self.lease_expires_at < moment
