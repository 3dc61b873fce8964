"""
Charges a period's requests again under another price card: the one home of that decision.

    rerate(CorrectionScope("gpt-5", starts_at, ends_at), actor=actor, reason="price of June was wrong")
    rerate(scope, actor=actor, is_dry_run=True)        the same figures; nothing is written

Batch by batch: one organization, some requests in the order of their admission, one transaction under the
account's lock. A request that is charged by the right card already is left alone, so a run that is repeated
changes nothing, one that was interrupted is completed by the next, and of two at once one wins each request.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from billing.corrections.entries import write_entries
from billing.corrections.recharge import RatedRequest, Recharge, SettledRequest, recharge_in_order
from billing.corrections.requests import (
    CorrectionScope,
    VersionTimeline,
    is_priced,
    pages_of,
    read_lines,
    read_requests,
)
from billing.corrections.totals import OrganizationTotals, RerateResult
from billing.ledger import batch
from billing.ledger.rows import NeededRows
from billing.models import Account, Correction, PriceVersion, Reservation, ReservationState
from billing.models.corrections import ACTOR_LENGTH, REASON_LENGTH
from billing.money import usd
from gateway_site.api.errors import InvalidRequest, NotFound
from organization.audit import trail
from organization.audit.trail import Actor

# The audit trail names so many organizations, those with the largest differences.
MOST_AUDITED = 50
LONGEST_PAUSE_SECONDS = 0.1
WITHOUT_QUANTITIES = "was settled at an amount that was found out later, without quantities"
WITHOUT_VERSION = "was admitted before any price version was in force"


def rerate(
    scope: CorrectionScope, *, actor: Actor, reason: str = "", is_dry_run: bool = False
) -> RerateResult:
    """
    Charge every settled request of the scope by the right version, and say what that came to.

    Quantities are those that were charged for. A request that was charged less than its cost, for want of
    credit, is charged its full cost by the new card, as far as there is credit now.
    """
    require_possible(scope, reason)
    run = _DryRun(scope) if is_dry_run else _Run(scope, actor, reason)
    for organization_id, ids in pages_of(scope):
        run.correct(organization_id, ids)
    run.finish()
    return run.result


def count_requests(scope: CorrectionScope, most: int) -> int:
    """How many requests a run would read, counted no further than one more than `most`."""
    found = 0
    for _, ids in pages_of(scope):
        found += len(ids)
        if found > most:
            break
    return found


def require_possible(scope: CorrectionScope, reason: str = "") -> None:
    """Refuse a period or a version that cannot be meant."""
    if scope.starts_at >= scope.ends_at:
        raise InvalidRequest("The period must begin before it ends.")
    if scope.ends_at > timezone.now():
        raise InvalidRequest("The period must not end in the future: its requests are not all there yet.")
    if len(reason) > REASON_LENGTH:
        raise InvalidRequest(f"A reason has at most {REASON_LENGTH} characters.")
    if scope.version is not None and scope.version.model != scope.model:
        raise InvalidRequest(
            f"The version {scope.version.pk} is of {scope.version.model}, not {scope.model}."
        )
    if not PriceVersion.objects.filter(model=scope.model).exists():
        raise NotFound(f"There is no price version of a model {scope.model!r}.")


class _DryRun:
    """Computes what a run would do, from what is there now, and changes nothing."""

    def __init__(self, scope: CorrectionScope) -> None:
        self.scope = scope
        self.result = RerateResult()
        self._timeline = VersionTimeline(scope.model)
        # The credit that each organization would have left.
        self._available: dict[uuid.UUID, int] = {}

    def correct(self, organization_id: uuid.UUID, ids: list[uuid.UUID]) -> None:
        """Compute some requests of one organization, as if those before them had been corrected."""
        if organization_id not in self._available:
            account = Account.objects.filter(pk=organization_id).first()
            self._available[organization_id] = account.available_nanousd if account else 0
        requests = read_requests(self.scope, organization_id, ids)
        recharges = self._recharges(requests, self._available[organization_id])
        self._available[organization_id] -= sum(each.difference_nanousd for each in recharges)
        self.result.add(organization_id, requests, recharges)

    def finish(self) -> None:
        still_open = Reservation.objects.filter(
            model=self.scope.model,
            state__in=[ReservationState.HELD, ReservationState.UNKNOWN],
            admitted_at__gte=self.scope.starts_at,
            admitted_at__lt=self.scope.ends_at,
        )
        if self.scope.organization is not None:
            still_open = still_open.filter(organization=self.scope.organization)
        self.result.still_open = still_open.count()

    def _recharges(self, requests: Sequence[SettledRequest], available_nanousd: int) -> list[Recharge]:
        """The new charges of those requests that are not charged by the right card."""
        wrong = []
        for request in requests:
            version = self.scope.version or self._timeline.at(request.admitted_at)
            if version is None:
                self.result.skip(request, WITHOUT_VERSION)
            elif not self._timeline.is_same_card(request.version_id, version):
                wrong.append((request, self._timeline.card_of(version)))
        lines = read_lines([request.id for request, _ in wrong])
        rated = []
        for request, card in wrong:
            if is_priced(request, lines[request.id]):
                rated.append(RatedRequest(request, lines[request.id], card))
            else:
                self.result.skip(request, WITHOUT_QUANTITIES)
        return recharge_in_order(rated, available_nanousd)


class _Run(_DryRun):
    """Corrects what it finds, a page of requests in one transaction."""

    def __init__(self, scope: CorrectionScope, actor: Actor, reason: str) -> None:
        super().__init__(scope)
        self.actor = actor
        self.reason = reason
        # How long the account of the last page was locked.
        self._page_seconds = 0.0

    def correct(self, organization_id: uuid.UUID, ids: list[uuid.UUID]) -> None:
        """Correct some requests of one organization, all of them or none."""
        # Admission's turn: SQLite's one lock goes to whoever asks first, and that would be us again.
        time.sleep(min(LONGEST_PAUSE_SECONDS, self._page_seconds))
        began = time.monotonic()
        with transaction.atomic():
            available = _lock(organization_id)
            requests = read_requests(self.scope, organization_id, ids)
            recharges = self._recharges(requests, available)
            correction = self.result.correction
            if recharges:
                correction = correction or self._begin()
                write_entries(correction, organization_id, recharges)
        self._page_seconds = time.monotonic() - began
        self.result.correction = correction
        self.result.add(organization_id, requests, recharges)

    def _begin(self) -> Correction:
        """Record the run, in the transaction of its first change."""
        scope = self.scope
        correction = Correction.objects.create(
            model=scope.model,
            starts_at=scope.starts_at,
            ends_at=scope.ends_at,
            version=scope.version,
            organization=scope.organization,
            reason=self.reason,
            actor=self.actor.label[:ACTOR_LENGTH],
        )
        details = {
            "model": scope.model,
            "from": scope.starts_at.isoformat(),
            "to": scope.ends_at.isoformat(),
            "version": str(scope.version.pk) if scope.version else "in force",
            "reason": self.reason,
        }
        trail.record(
            self.actor, "correction.start", correction, organization=scope.organization, details=details
        )
        return correction

    def finish(self) -> None:
        """Record what the run came to. One that was interrupted has no such entry."""
        super().finish()
        result = self.result
        if result.correction is None:
            return
        changed = [each for each in result.organizations if each.changed]
        largest = changed[:MOST_AUDITED]
        details = {
            "model": self.scope.model,
            "requests": result.changed,
            "difference_usd": usd(result.after_nanousd - result.before_nanousd),
            "uncollected_usd": usd(result.uncollected_nanousd),
            "organizations": {str(each.organization_id): _audited(each) for each in largest},
            "organizations_left_out": len(changed) - len(largest),
        }
        with transaction.atomic():
            trail.record(
                self.actor,
                "correction.finish",
                result.correction,
                organization=self.scope.organization,
                details=details,
            )


def _lock(organization_id: uuid.UUID) -> int:
    """Lock the organization's account, before anything else of it is read; the credit that it has left."""
    needs = NeededRows(organizations={organization_id.hex})
    account = batch.store_over(connection).read(needs, wait=True).accounts[organization_id.hex]
    return account.granted - account.held - account.settled


def _audited(totals: OrganizationTotals) -> dict[str, Any]:
    return {
        "requests": totals.changed,
        "difference_usd": usd(totals.difference_nanousd),
        "uncollected_usd": usd(totals.uncollected_nanousd),
    }
