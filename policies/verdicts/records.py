"""Verdicts as rows: recorded while requests run, read as evidence for thresholds."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, Q
from django.utils import timezone
from msgspec import Struct

from policies.backtest import SWEEP
from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.judging import PolicyFinding
from policies.models import Direction, Policy, Verdict, VerdictOutcome
from policies.verdicts.writer import writer

MAX_EVIDENCE = 100_000


class VerdictRecorder(Struct, frozen=True):
    """Records the verdicts of one judge on one direction of one request."""

    project_id: uuid.UUID
    request_id: uuid.UUID
    judge: str
    direction: Direction

    def record(self, findings: Iterable[PolicyFinding], judgements: int = 1) -> None:
        """Have a row written for each finding, without waiting for it."""
        now = timezone.now()
        for finding in findings:
            writer.add(PendingVerdict(self, finding, judgements, now))

    def record_skipped(self, versions: Iterable[AttachedVersion], reason: str) -> None:
        """Record that these versions were not judged, and why."""
        self.record([PolicyFinding(version, None, 0, reason) for version in versions], judgements=0)


class PendingVerdict(Struct, frozen=True):
    """A verdict that waits to be written. It becomes a row in the writer's thread, off the request path."""

    recorder: VerdictRecorder
    finding: PolicyFinding
    judgements: int
    occurred_at: datetime

    def row(self) -> Verdict:
        recorder, finding = self.recorder, self.finding
        return Verdict(
            occurred_at=self.occurred_at,
            version_id=finding.version.version_id,
            project_id=recorder.project_id,
            request_id=recorder.request_id,
            direction=recorder.direction,
            mode=finding.version.mode,
            outcome=outcome_of(finding),
            score=finding.score,
            threshold_basis_points=finding.version.threshold_basis_points,
            judge=recorder.judge,
            latency_ms=finding.latency_ms,
            judgements=self.judgements,
            reason=finding.reason,
        )


def outcome_of(finding: PolicyFinding) -> VerdictOutcome:
    if finding.score is None:
        return VerdictOutcome.INCONCLUSIVE
    return VerdictOutcome.MATCH if finding.is_match else VerdictOutcome.NO_MATCH


class Evidence(Struct, frozen=True):
    """The latest verdicts of a policy's current version, and how many of them each threshold would block."""

    conclusive: int
    inconclusive: int
    blocked: list[tuple[int, int]]


def evidence_of(policy: Policy) -> Evidence:
    """What each threshold would have blocked, as far as the current version was judged."""
    if policy.current_version_id is None:
        return Evidence(0, 0, [(threshold, 0) for threshold in SWEEP])
    newest = Verdict.objects.filter(version_id=policy.current_version_id).order_by("-occurred_at")
    counts = Verdict.objects.filter(pk__in=newest.values("pk")[:MAX_EVIDENCE]).aggregate(
        conclusive=Count("pk", filter=Q(score__isnull=False)),
        inconclusive=Count("pk", filter=Q(score=None)),
        **{f"at_{each}": Count("pk", filter=Q(score__gte=each / 10_000)) for each in SWEEP},
    )
    return Evidence(
        counts["conclusive"], counts["inconclusive"], [(each, counts[f"at_{each}"]) for each in SWEEP]
    )
