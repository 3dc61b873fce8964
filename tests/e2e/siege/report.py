"""What the siege showed: the watched customer's waits by phase, the attacks' outcomes, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.siege.disturbances import Span
from tests.e2e.siege.watched_customer import Sample

CALM, ATTACKED = "before the attacks", "attacked"
DATABASE, WORKER = "the database frozen", "a worker killed"
# A request that was on a killed worker ends with it; one that began this long before may have been.
LOST_WITH_WORKER_SECONDS = 5.0


@dataclass
class Siege:
    """Everything that was recorded."""

    samples: Sequence[Sample]
    spans: dict[str, Span]
    attacks: dict[str, dict[str, int]]
    memory_before_mib: float
    memory_after_mib: float
    memory_peak_mib: float
    audit: dict[str, Any]
    most_wait_seconds: float
    most_growth_mib: float
    phases: dict[str, list[Sample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for sample in self.samples:
            self.phases.setdefault(self._phase_of(sample), []).append(sample)

    def _phase_of(self, sample: Sample) -> str:
        # Whatever else happened then, a request that met the database's absence is judged by that.
        names = sorted(self.spans, key=lambda name: (name != DATABASE, name in (CALM, ATTACKED)))
        return next(name for name in names if self.spans[name].overlaps(sample.started, sample.ended))

    def verdicts(self) -> dict[str, bool]:
        others = [sample for sample in self.samples if self._phase_of(sample) != DATABASE]
        away = self.phases.get(DATABASE, [])
        return {
            f"worst wait under {self.most_wait_seconds:g} s": all(
                sample.seconds < self.most_wait_seconds for sample in others
            ),
            "no failure but with the database or a killed worker": all(
                sample.is_whole or self._was_lost_with_worker(sample) for sample in others
            ),
            "database away: a whole answer or 503": all(
                sample.is_whole or sample.status == 503 for sample in away
            ),
            f"memory growth under {self.most_growth_mib:g} MiB": self.growth_mib < self.most_growth_mib,
            "every attack was tried": all(self.attacks.values()),
            "the books balance": bool(self.audit["ok"]),
        }

    @property
    def growth_mib(self) -> float:
        return self.memory_after_mib - self.memory_before_mib

    def _was_lost_with_worker(self, sample: Sample) -> bool:
        killed = self.spans.get(WORKER)
        if killed is None or sample.status not in (0, 200):
            return False
        return killed.start - LOST_WITH_WORKER_SECONDS <= sample.started <= killed.start + 0.5

    # --- as text -------------------------------------------------------------------------------------

    def markdown(self) -> str:
        memory = (
            f"Memory of a worker: {self.memory_before_mib:.0f} MiB before, {self.memory_after_mib:.0f} after,"
            f" {self.memory_peak_mib:.0f} at most."
        )
        verdicts = [f"- {'yes' if ok else '**no**'}: {name}" for name, ok in self.verdicts().items()]
        return "\n".join(
            [*self._phase_table(), "", *self._attack_table(), "", memory, "", *verdicts, ""],
        )

    def _phase_table(self) -> list[str]:
        lines = [
            "| the watched customer | requests | not answered in full | median | worst |",
            "|---|---|---|---|---|",
        ]
        for name in self.spans:
            samples = self.phases.get(name, [])
            waits = [sample.seconds for sample in samples] or [0.0]
            failed = [str(sample.status) for sample in samples if not sample.is_whole]
            seen = ", ".join(f"{failed.count(status)} x {status}" for status in sorted(set(failed)))
            lines.append(
                f"| {name} | {len(samples)} | {seen or '0'} "
                f"| {statistics.median(waits) * 1000:.0f} ms | {max(waits) * 1000:.0f} ms |"
            )
        return lines

    def _attack_table(self) -> list[str]:
        lines = ["| attack | what became of it |", "|---|---|"]
        for name, outcomes in self.attacks.items():
            seen = ", ".join(f"{number} x {outcome}" for outcome, number in sorted(outcomes.items()))
            lines.append(f"| {name} | {seen or 'never tried to the end'} |")
        return lines
