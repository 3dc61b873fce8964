"""Credit, and what bounds its use: accounts, grants, spending caps, meters of keys."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from organization.models import Organization, Project, ProjectKey


class Account(models.Model):
    """
    The credit of one organization. Its row is the lock of everything else that belongs to the
    organization in this file: whoever changes one of those rows holds this one first.
    """

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="account"
    )
    granted_nanousd = models.BigIntegerField(default=0)
    held_nanousd = models.BigIntegerField(default=0)
    settled_nanousd = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "credit"
        constraints = [
            models.CheckConstraint(name="account_held_not_negative", condition=Q(held_nanousd__gte=0)),
            models.CheckConstraint(name="account_settled_not_negative", condition=Q(settled_nanousd__gte=0)),
            # The rule of admission: no code path can promise the same credit twice.
            models.CheckConstraint(
                name="account_never_overdrawn",
                condition=Q(granted_nanousd__gte=F("held_nanousd") + F("settled_nanousd")),
            ),
        ]

    def __str__(self) -> str:
        # Where it was read along: a name is not worth a query.
        known = self._state.fields_cache.get("organization")
        return str(known or self.organization_id)

    @property
    def available_nanousd(self) -> int:
        return self.granted_nanousd - self.held_nanousd - self.settled_nanousd


class CreditGrant(models.Model):
    """Credit given, or taken back by a negative grant. Append-only; the account's `granted` is their sum."""

    id = models.BigAutoField(primary_key=True)
    account = models.ForeignKey(Account, models.PROTECT, related_name="grants")
    amount_nanousd = models.BigIntegerField()
    reason = models.CharField(max_length=500, blank=True)
    # An invoice or payment number. Granting the same one twice grants once.
    reference = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "none given"
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "grant"
        constraints = [
            models.CheckConstraint(name="grant_is_not_nothing", condition=~Q(amount_nanousd=0)),
            models.UniqueConstraint(name="grant_reference_used_once", fields=["account", "reference"]),
        ]

    def __str__(self) -> str:
        return f"grant {self.pk}"


class SpendingCap(models.Model):
    """The most that an organization, a project or a key may spend in a day, in a month (UTC), or ever."""

    class Period(models.TextChoices):
        DAY = "day"
        MONTH = "month"
        TOTAL = "total"

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="spending_caps")
    project = models.ForeignKey(Project, models.PROTECT, related_name="spending_caps", null=True, blank=True)
    api_key = models.ForeignKey(
        ProjectKey, models.PROTECT, related_name="spending_caps", null=True, blank=True
    )
    period = models.CharField(max_length=5, choices=Period)
    limit_nanousd = models.BigIntegerField()

    class Meta:
        verbose_name = "limit"
        constraints = [
            models.CheckConstraint(
                name="cap_period_known", condition=Q(period__in=["day", "month", "total"])
            ),
            models.CheckConstraint(name="cap_limit_not_negative", condition=Q(limit_nanousd__gte=0)),
            models.CheckConstraint(name="cap_has_one_scope", condition=Q(project=None) | Q(api_key=None)),
            models.UniqueConstraint(
                name="cap_unique_for_organization",
                fields=["organization", "period"],
                condition=Q(project=None, api_key=None),
            ),
            models.UniqueConstraint(
                name="cap_unique_for_project",
                fields=["project", "period"],
                condition=Q(project__isnull=False),
            ),
            models.UniqueConstraint(
                name="cap_unique_for_key", fields=["api_key", "period"], condition=Q(api_key__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} cap, {self.period}"

    @property
    def scope(self) -> str:
        if self.api_key_id:
            return "key"
        return "project" if self.project_id else "organization"


class CapPeriod(models.Model):
    """
    What one cap counts in one of its periods: the reservations of its scope admitted in that time.

    Which reservations those are follows from their scope and `admitted_at`, so no request needs a row
    that links it to its caps, and a request that settles after midnight still counts for its own day.
    """

    id = models.BigAutoField(primary_key=True)
    cap = models.ForeignKey(SpendingCap, models.CASCADE, related_name="periods")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    held_nanousd = models.BigIntegerField(default=0)
    settled_nanousd = models.BigIntegerField(default=0)
    # The cap's limit, or what was already used when the limit was lowered below it. It is copied here so
    # that the database itself refuses to go beyond it.
    ceiling_nanousd = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="cap_period_unique", fields=["cap", "starts_at"]),
            models.CheckConstraint(
                name="cap_counts_not_negative", condition=Q(held_nanousd__gte=0, settled_nanousd__gte=0)
            ),
            models.CheckConstraint(
                name="cap_never_exceeded",
                condition=Q(ceiling_nanousd__gte=F("held_nanousd") + F("settled_nanousd")),
            ),
        ]

    def __str__(self) -> str:
        return f"period from {self.starts_at:%Y-%m-%d}"


class KeyMeter(models.Model):
    """
    Live holds of a key, and its requests in the current minute. Changes with the reservations in one
    transaction, so no crash can leave a slot taken; the audit counts the rows and compares.
    """

    api_key = models.OneToOneField(ProjectKey, models.PROTECT, primary_key=True, related_name="meter")
    live_holds = models.IntegerField(default=0)
    window_starts_at = models.DateTimeField()
    window_requests = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="meter_not_negative", condition=Q(live_holds__gte=0, window_requests__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return f"meter of {self.api_key_id}"
