"""What was charged: line by line, and summed by day."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.models.reservations import Reservation
from gateway_site.database.time_index import TimeIndex
from organization.models import NAME_LENGTH, Organization, Project, ProjectKey

LINE_ITEM_LENGTH = NAME_LENGTH + 50


class Cost(models.Model):
    """What a cost is of. `day` is the UTC day on which the request was admitted, however late it settled."""

    id = models.BigAutoField(primary_key=True)
    # No constraint, for the same reason as on Reservation.
    organization = models.ForeignKey(
        Organization, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        ProjectKey, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    day = models.DateField()
    line_item = models.CharField(max_length=LINE_ITEM_LENGTH)
    quantity = models.BigIntegerField()
    amount_nanousd = models.BigIntegerField()

    class Meta:
        abstract = True


class CostLine(Cost):
    """One line item of one settled request. Append-only: this is the ledger of what was charged."""

    reservation = models.ForeignKey(
        Reservation, models.PROTECT, related_name="lines", db_constraint=False, db_index=False
    )

    # When the request was admitted: a report's bounds are seconds.
    admitted_at = models.DateTimeField()
    # 0 for the settlement; a correction adds lines with the next number, whose amounts are differences.
    revision = models.PositiveSmallIntegerField(default=0)

    class Meta:
        # For reports that begin or end within a day; all else is read from sums.
        indexes = [TimeIndex(name="cost_line_by_time", fields=["admitted_at"])]
        constraints = [
            # A second settlement of the same request could not be stored.
            models.UniqueConstraint(name="cost_line_once", fields=["reservation", "line_item", "revision"]),
            models.CheckConstraint(
                name="cost_line_not_negative",
                condition=Q(revision__gt=0) | Q(quantity__gte=0, amount_nanousd__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.line_item} of {self.reservation_id}"


class UnrolledCost(Cost):
    """
    The cost lines of one batch, summed, that no roll-up has taken yet.

    Written in the transaction of the lines themselves, and deleted in the one that adds them to
    DailyCost, so that DailyCost plus this table is every line, at every moment, with no watermark and
    without a mark on rows that may not change.
    """

    lines = models.IntegerField()

    class Meta:
        indexes = [
            # For the cost report, which adds these to the days that are rolled up.
            models.Index(name="unrolled_cost_in_report", fields=["organization", "day"]),
        ]

    def __str__(self) -> str:
        return f"{self.line_item} on {self.day}"


class DailyCost(Cost):
    """What one key spent on one line item on one day, as far as it is rolled up."""

    lines = models.BigIntegerField()

    class Meta:
        constraints = [
            # Also the index of the cost report: an organization's days, in order.
            models.UniqueConstraint(
                name="daily_cost_unique", fields=["organization", "day", "project", "api_key", "line_item"]
            ),
            # An amount may be less than nothing for a moment, where a correction is rolled up before the
            # lines that it corrects; the number of lines never is.
            models.CheckConstraint(name="daily_cost_not_negative", condition=Q(lines__gte=0)),
        ]

    def __str__(self) -> str:
        return f"{self.line_item} on {self.day}"
