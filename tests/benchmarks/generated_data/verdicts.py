"""Made-up verdicts on requests that nobody made, for measuring."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from organization.audit.trail import Actor
from organization.models import Organization
from policies import services
from policies.models import Verdict, VerdictOutcome
from policies.verdicts.writer import OUTCOMES, daily

BATCH = 5_000


class GeneratedVerdicts:
    """Verdicts of one published policy of an organization, which monitors only."""

    def __init__(self, organization: Organization, actor: Actor) -> None:
        policy = services.create_policy(
            organization=organization, actor=actor, name="Made up", rule="Is this made up?"
        )
        services.publish_policy(policy=policy, mode="monitoring", actor=actor)
        self._version = policy.versions.get()
        self._rng = random.Random(1)
        self.count = 0

    def write(self, requests: Iterable[tuple[UUID, UUID, datetime]]) -> None:
        """Write a verdict on each of these requests, given by id, project and time."""
        rows = [self._verdict(*request) for request in requests]
        counts = Counter((row.occurred_at.date(), VerdictOutcome(row.outcome)) for row in rows)
        days = {day for day, _ in counts}
        with transaction.atomic():
            Verdict.objects.bulk_create(rows, batch_size=BATCH)
            daily.add({(day, self._version.pk): [counts[day, each] for each in OUTCOMES] for day in days})
        self.count += len(rows)

    def _verdict(self, request_id: UUID, project_id: UUID, when: datetime) -> Verdict:
        score = None if self._rng.random() < 0.01 else self._rng.random() ** 4
        threshold = self._version.match_threshold_basis_points
        outcome = (
            VerdictOutcome.MATCH
            if score is not None and score * 10_000 >= threshold
            else VerdictOutcome.NO_MATCH
        )
        return Verdict(
            occurred_at=when,
            version=self._version,
            project_id=project_id,
            request_id=request_id,
            direction="request",
            mode=self._version.mode,
            outcome=VerdictOutcome.INCONCLUSIVE if score is None else outcome,
            score=score,
            threshold_basis_points=threshold,
            judge="made up",
            latency_ms=self._rng.randint(20, 400),
            reason="timeout" if score is None else "",
        )
