"""
What operators do to credit. Every door comes through here: the console and the commands.

Requests do not: they go to `ledger`. Both take an organization's account row first and whatever else they
need after it, so they wait for each other and never in a circle. LEDGER.md has the discipline.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Greatest
from django.utils import timezone

from billing.ledger import batch
from billing.ledger.cap_periods import period_of
from billing.ledger.rows import NeededRows
from billing.models import (
    Account,
    CapPeriod,
    CreditGrant,
    DailyCost,
    Reservation,
    SpendingCap,
    UnrolledCost,
)
from billing.money import MAX_NANOUSD, usd
from gateway_site.api.errors import Conflict, InvalidRequest
from organization.audit import trail
from organization.audit.trail import Actor
from organization.models import Organization, Project, ProjectKey

SpendingScope = Organization | Project | ProjectKey


def grant_credit(
    *,
    organization: Organization,
    amount_nanousd: int,
    actor: Actor,
    reason: str = "",
    reference: str | None = None,
) -> tuple[CreditGrant, bool]:
    """
    Add credit; a negative amount takes back what is not spent or held.

    With a `reference` it is done once: the same one again returns the grant it made, and False.
    """
    with transaction.atomic():
        _lock(organization)
        account = Account.objects.get(pk=organization.pk)
        existing = account.grants.filter(reference=reference).first() if reference else None
        if existing is not None:
            if existing.amount_nanousd != amount_nanousd:
                raise Conflict(f"{reference!r} was used for a grant of ${usd(existing.amount_nanousd)}.")
            return existing, False
        if amount_nanousd == 0:
            raise InvalidRequest("A grant of nothing is not recorded.")
        if account.available_nanousd + amount_nanousd < 0:
            raise Conflict(f"Only ${usd(account.available_nanousd)} is left to take back.")
        if account.granted_nanousd + amount_nanousd > MAX_NANOUSD:
            raise InvalidRequest(f"An account can hold ${usd(MAX_NANOUSD)} and no more.")
        grant = CreditGrant.objects.create(
            account=account, amount_nanousd=amount_nanousd, reason=reason, reference=reference
        )
        account.granted_nanousd += amount_nanousd
        account.save(update_fields=["granted_nanousd"])
        trail.record(
            actor,
            "credit.grant",
            account,
            organization=organization,
            details={"usd": usd(amount_nanousd), "reason": reason, "reference": reference or ""},
        )
        return grant, True


def set_spending_limit(*, scope: SpendingScope, period: str, limit_nanousd: int, actor: Actor) -> SpendingCap:
    """
    Cap what an organization, project or key may spend in a day, a month or ever, counting what it spent
    in the current period already. Less than that is legal: it stops new requests and no running ones.
    """
    if period not in SpendingCap.Period.values:
        raise InvalidRequest(f"The period must be one of {', '.join(SpendingCap.Period.values)}.")
    if not 0 <= limit_nanousd <= MAX_NANOUSD:
        raise InvalidRequest("A limit is not negative, and no more than an account can hold.")
    organization = _organization_of(scope)
    with transaction.atomic():
        now = _lock(organization)
        earlier = own_limits(scope).filter(period=period).first()
        cap, is_new = SpendingCap.objects.update_or_create(
            organization=organization,
            project=scope if isinstance(scope, Project) else None,
            api_key=scope if isinstance(scope, ProjectKey) else None,
            period=period,
            defaults={"limit_nanousd": limit_nanousd},
        )
        if is_new:
            # Earlier periods stay uncounted, and later ones start at nothing like every other cap's.
            _count_current_period(cap, scope, now)
        else:
            cap.periods.filter(Q(ends_at=None) | Q(ends_at__gt=now)).update(
                ceiling_nanousd=Greatest(limit_nanousd, F("held_nanousd") + F("settled_nanousd"))
            )
        trail.record(
            actor,
            "spending_limit.set",
            scope,
            organization=organization,
            details={
                "usd": usd(limit_nanousd),
                "period": period,
                **({"before": {"usd": usd(earlier.limit_nanousd)}} if earlier else {}),
            },
        )
    return cap


def remove_spending_limit(*, cap: SpendingCap, actor: Actor) -> None:
    """Forget a cap and its counts. Done twice, the second changes nothing."""
    with transaction.atomic():
        _lock(cap.organization)
        current = SpendingCap.objects.filter(pk=cap.pk).first()
        if current is None:
            return
        scope = cap.api_key or cap.project or cap.organization
        trail.record(
            actor,
            "spending_limit.remove",
            scope,
            organization=cap.organization,
            details={"usd": usd(current.limit_nanousd), "period": cap.period},
        )
        current.delete()


def _organization_of(scope: SpendingScope) -> Organization:
    match scope:
        case Organization():
            return scope
        case Project():
            return scope.organization
        case _:
            return scope.project.organization


def _lock(organization: Organization) -> datetime:
    """Lock the organization's account, which need not exist yet, and read the database's clock."""
    needs = NeededRows(organizations={organization.pk.hex})
    return batch.store_over(connection).read(needs, wait=True).now


def own_limits(scope: SpendingScope) -> QuerySet[SpendingCap]:
    """The limits that were set on this very organization, project or key."""
    return SpendingCap.objects.filter(
        organization=_organization_of(scope),
        project=scope if isinstance(scope, Project) else None,
        api_key=scope if isinstance(scope, ProjectKey) else None,
    )


def used_in_period(scope: SpendingScope, period: str, now: datetime | None = None) -> tuple[int, int]:
    """What the scope holds and has spent of the period that `now` is in: what a new limit starts from."""
    starts_at, ends_at = period_of(now or timezone.now(), period)
    owned = Q(organization=_organization_of(scope))
    if isinstance(scope, Project):
        owned &= Q(project=scope)
    if isinstance(scope, ProjectKey):
        owned &= Q(api_key=scope)
    admitted = Q(admitted_at__gte=starts_at)
    days = Q(day__gte=starts_at.date())
    if ends_at is not None:
        admitted &= Q(admitted_at__lt=ends_at)
        days &= Q(day__lt=ends_at.date())
    opened = Reservation.objects.filter(owned & admitted, state__in=["held", "unknown"])
    held = opened.aggregate(total=Sum("reserved_nanousd"))["total"] or 0
    # The days' sums and what is not rolled up yet are every line there is.
    settled = sum(
        int(model.objects.filter(owned & days).aggregate(total=Sum("amount_nanousd"))["total"] or 0)
        for model in (DailyCost, UnrolledCost)
    )
    return int(held), settled


def _count_current_period(cap: SpendingCap, scope: SpendingScope, now: datetime) -> None:
    """Under the account's lock, so nothing moves while it is counted."""
    starts_at, ends_at = period_of(now, cap.period)
    held, settled = used_in_period(scope, cap.period, now)
    CapPeriod.objects.create(
        cap=cap,
        starts_at=starts_at,
        ends_at=ends_at,
        held_nanousd=held,
        settled_nanousd=settled,
        ceiling_nanousd=max(cap.limit_nanousd, held + settled),
    )
