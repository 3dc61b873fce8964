"""One row for each request that was ever admitted."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from billing.models.prices import PriceVersion
from billing.prices.price import Quantities
from organization.models import NAME_LENGTH, Organization, Project, ProjectKey


class ReservationState(models.TextChoices):
    """How a reservation stands: open while held or unknown, ended otherwise."""

    HELD = "held"
    UNKNOWN = "unknown"
    SETTLED = "settled"
    RELEASED = "released"
    WRITTEN_OFF = "written_off"


class ChargeBasis(models.TextChoices):
    """Where the quantities of a charge come from."""

    USAGE = "usage", "reported usage"
    OBSERVED = "observed", "counted here"
    ESTIMATED = "estimated", "the prompt alone, as counted here"
    CHECKPOINT = "checkpoint", "last checkpoint before a crash"
    RECONCILED = "reconciled", "found out later"


class EndedBy(models.TextChoices):
    """Who or what ended a request, which decides who pays for it."""

    COMPLETE = "complete", "the answer was complete"
    CLIENT = "client", "the client left, or read nothing"
    BACKEND = "backend", "the backend refused, failed or was cut off"
    DEADLINE = "deadline", "the deadline passed"
    POLICY = "policy", "a policy refused it"
    SHUTDOWN = "shutdown", "the gateway was stopped"
    CRASH = "crash", "the gateway\N{RIGHT SINGLE QUOTATION MARK}s process was lost"


class Reservation(models.Model):
    """
    One request's hold on credit, for all its completions, and how it ended.

    A trigger refuses to change one that has ended, and to delete any.
    """

    State = ReservationState
    Basis = ChargeBasis

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

    # The version of the price card that it was admitted under. No constraint, for the same reason.
    price_version = models.ForeignKey(
        PriceVersion, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    # The most that it may use, by quantity: what it was held for.
    bounds = models.JSONField()
    # What it has used, by quantity: as heartbeats reported it, and as it was charged once it is settled.
    used = models.JSONField(null=True)

    state = models.CharField(max_length=11, choices=ReservationState)
    basis = models.CharField(max_length=10, choices=ChargeBasis, blank=True, default="")
    ended_by = models.CharField(max_length=8, choices=EndedBy, blank=True, default="")
    # What is held, or was at the end: less than at admission for an unknown outcome, more where the request
    # used more than its bounds and there was credit for it.
    reserved_nanousd = models.BigIntegerField()
    charged_nanousd = models.BigIntegerField(null=True)
    # What the request cost beyond what could be charged, or may have cost when it was given up.
    operator_loss_nanousd = models.BigIntegerField(default=0)

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
                    basis__in=["usage", "observed", "estimated", "checkpoint", "reconciled"],
                )
                | Q(
                    state__in=["released", "written_off"],
                    charged_nanousd=0,
                    resolved_at__isnull=False,
                    basis="",
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
    def used_quantities(self) -> Quantities | None:
        return None if self.used is None else Quantities(**self.used)

    @property
    def bound_quantities(self) -> Quantities:
        return Quantities(**self.bounds)
