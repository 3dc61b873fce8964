from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from gateway_site.api.errors import PolicyStateConflict
from gateway_site.management.operator_command import OperatorCommand
from policies import backtest
from policies.judges import current_judge
from policies.lookups import find_policy

BAR_WIDTH = 40


class Command(OperatorCommand):
    help = "Ask a policy's question about a file of cases (.jsonl or .csv) and say how often it is right."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")
        parser.add_argument("--cases", required=True, type=Path, metavar="FILE")
        parser.add_argument("--published", action="store_true", help="the current version, not the draft")

    def perform(self, *, id: str, cases: Path, published: bool, **options: Any) -> dict[str, Any]:
        policy = find_policy(id)
        rule, threshold = policy.rule, policy.threshold_if_published
        if published:
            if policy.current_version is None:
                raise PolicyStateConflict("This policy was never published.")
            rule = policy.current_version.rule
            threshold = policy.current_version.match_threshold_basis_points
        judge = current_judge()
        loaded = backtest.load_cases(cases)
        scored = asyncio.run(
            backtest.run(
                judge,
                rule,
                loaded,
                concurrency=settings.GATEWAY_JUDGE_CONCURRENCY,
                seconds=settings.GATEWAY_JUDGE_SECONDS,
                on_progress=lambda done: self._show(done, len(loaded)),
            )
        )
        return {"id": str(policy.pk), "judge": judge.name, **backtest.report(scored, threshold)}

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        if outcome["inconclusive"] == outcome["cases"]:
            return f"The judge ({outcome['judge']}) answered for none of the cases."
        return None

    def describe(self, outcome: dict[str, Any]) -> str:
        counts = outcome["histogram"]
        lines = [
            f"{outcome['cases']} cases, {outcome['inconclusive']} inconclusive; judge: {outcome['judge']}.",
            "",
            "P(yes)      cases",
            *(_bin(number, count, max(*counts, 1)) for number, count in enumerate(counts)),
            "",
            "threshold  precision  recall  blocked  wrongly  missed",
            *(_line(row, outcome["at_threshold"]) for row in outcome["sweep"]),
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _show(self, done: int, total: int) -> None:
        # On the error stream, and only where somebody watches: the outcome is on the other.
        if self.stderr.isatty():
            filled = BAR_WIDTH * done // total
            end = "\n" if done == total else ""
            self.stderr.write(
                f"\r[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {done}/{total}", self.style.NOTICE, end
            )


def _bin(number: int, count: int, most: int) -> str:
    return f"{number / 10:.1f} - {(number + 1) / 10:.1f}  {count:>5}  {'#' * round(BAR_WIDTH * count / most)}"


def _line(row: dict[str, Any], chosen: dict[str, Any]) -> str:
    blocked = row["true_positives"] + row["false_positives"]
    mark = "  <" if row["threshold_basis_points"] == chosen["threshold_basis_points"] else ""
    return (
        f"{row['threshold_basis_points']:>9}  {_percent(row['precision']):>9}  {_percent(row['recall']):>6}"
        f"  {blocked:>7}  {row['false_positives']:>7}  {row['false_negatives']:>6}{mark}"
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
