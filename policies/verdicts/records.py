"""What judges said, as rows: noted while requests run, read as evidence for thresholds."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q
from django.utils import timezone
from msgspec import Struct

from policies.backtest import SWEEP
from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.judging import Finding
from policies.models import Direction, Outcome, Policy, Verdict
from policies.verdicts.writer import writer

PRUNED_AT_ONCE = 10_000
MAX_EVIDENCE = 100_000


class Record(Struct, frozen=True):
    """Whose verdicts these are."""

    project_id: uuid.UUID
    request_id: uuid.UUID
    judge: str
    direction: Direction

    def note(self, findings: Iterable[Finding], judgements: int = 1) -> None:
        """Have a row written for each."""
        now = timezone.now()
        for finding in findings:
            writer.add(Note(self, finding, judgements, now))

    def note_skipped(self, versions: Iterable[AttachedVersion], reason: str) -> None:
        self.note([Finding(version, None, 0, reason) for version in versions], judgements=0)


class Note(Struct, frozen=True):
    """A row to be. It becomes one in the writer's thread, where nobody waits for it."""

    record: Record
    finding: Finding
    judgements: int
    occurred_at: datetime

    def row(self) -> Verdict:
        record, finding = self.record, self.finding
        return Verdict(
            occurred_at=self.occurred_at,
            version_id=finding.version.version_id,
            project_id=record.project_id,
            request_id=record.request_id,
            direction=record.direction,
            mode=finding.version.mode,
            outcome=outcome_of(finding),
            score=finding.score,
            threshold_basis_points=finding.version.threshold_basis_points,
            judge=record.judge,
            latency_ms=finding.latency_ms,
            judgements=self.judgements,
            reason=finding.reason,
        )


def outcome_of(finding: Finding) -> Outcome:
    if finding.score is None:
        return Outcome.INCONCLUSIVE
    return Outcome.MATCH if finding.is_match else Outcome.NO_MATCH


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


def prune_verdicts() -> int:
    """Delete verdicts that are past their days, a few at a time so that no lock is held for long."""
    oldest = timezone.now() - timedelta(days=settings.GATEWAY_VERDICT_DAYS)
    total = 0
    while True:
        few = list(
            Verdict.objects.filter(occurred_at__lt=oldest).values_list("pk", flat=True)[:PRUNED_AT_ONCE]
        )
        if not few:
            return total
        total += Verdict.objects.filter(pk__in=few).delete()[0]
