"""What a correction comes to: figures for each organization, and those requests that it left alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from billing.corrections.recharge import Recharge, SettledRequest
from billing.models import Correction

# Requests that could not be charged again are named up to so many.
MOST_NAMED = 20


@dataclass(slots=True)
class OrganizationTotals:
    """What a correction comes to for one organization."""

    organization_id: uuid.UUID
    # All that were settled in the period, and those whose charge or lines change.
    requests: int = 0
    changed: int = 0
    # The charges of all of them, before and after.
    before_nanousd: int = 0
    after_nanousd: int = 0
    # What there was no credit for: the operator's loss.
    uncollected_nanousd: int = 0

    def add(self, requests: Sequence[SettledRequest], recharges: Sequence[Recharge]) -> None:
        """Count a page of requests, and the new charges of some of them."""
        before = sum(each.charged_nanousd for each in requests)
        self.requests += len(requests)
        self.changed += len(recharges)
        self.before_nanousd += before
        self.after_nanousd += before + sum(each.difference_nanousd for each in recharges)
        self.uncollected_nanousd += sum(each.uncollected_nanousd for each in recharges)

    @property
    def difference_nanousd(self) -> int:
        return self.after_nanousd - self.before_nanousd


@dataclass(slots=True)
class RerateResult:
    """What a run changed, or would change, for each organization that has such requests."""

    by_organization: dict[uuid.UUID, OrganizationTotals] = field(default_factory=dict)
    # None where nothing was changed.
    correction: Correction | None = None
    skipped: int = 0
    # The first of those that were skipped, each with the reason.
    skipped_requests: list[tuple[uuid.UUID, str]] = field(default_factory=list)
    # Requests of the period that have not ended: the version that they were admitted under is their price.
    still_open: int = 0

    def add(
        self, organization_id: uuid.UUID, requests: Sequence[SettledRequest], recharges: Sequence[Recharge]
    ) -> None:
        """Count some requests of one organization, and the new charges of some of them."""
        if requests:
            totals = self.by_organization.setdefault(organization_id, OrganizationTotals(organization_id))
            totals.add(requests, recharges)

    @property
    def organizations(self) -> list[OrganizationTotals]:
        """The figures of each organization, the largest difference first."""
        return sorted(
            self.by_organization.values(),
            key=lambda each: (-abs(each.difference_nanousd), each.organization_id),
        )

    @property
    def requests(self) -> int:
        return sum(each.requests for each in self.by_organization.values())

    @property
    def changed(self) -> int:
        return sum(each.changed for each in self.by_organization.values())

    @property
    def before_nanousd(self) -> int:
        return sum(each.before_nanousd for each in self.by_organization.values())

    @property
    def after_nanousd(self) -> int:
        return sum(each.after_nanousd for each in self.by_organization.values())

    @property
    def uncollected_nanousd(self) -> int:
        return sum(each.uncollected_nanousd for each in self.by_organization.values())

    def skip(self, request: SettledRequest, reason: str) -> None:
        self.skipped += 1
        if len(self.skipped_requests) < MOST_NAMED:
            self.skipped_requests.append((request.id, reason))
