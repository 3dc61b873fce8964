"""
A rule against a file of cases: how often it is right, at its threshold and at every other.

A case is a text and what a person says the answer is. JSONL: `{"text": "…", "expected": true}`; CSV: columns
`text` and `expected`. `expected` may be left out; such a case is in the histogram alone.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway_site.api.errors import InvalidRequest
from policies.judges import Inconclusive, Judge

TRUE_WORDS, FALSE_WORDS = {"true", "yes", "1"}, {"false", "no", "0"}
BINS = 10
SWEEP = (500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000, 9_500, 9_900)


class Case(Struct, frozen=True):
    text: str
    expected: bool | None = None


class ScoredCase(Struct, frozen=True):
    case: Case
    score: float | None


class Accuracy(Struct, frozen=True, kw_only=True):
    """Counts and shares at one threshold; a share is None where there is nothing to divide by."""

    threshold_basis_points: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @property
    def precision(self) -> float | None:
        return _share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float | None:
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def blocked(self) -> int:
        return self.true_positives + self.false_positives


def load_cases(path: Path) -> list[Case]:
    """The cases of a .jsonl or .csv file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}.") from None
    rows = _csv_rows(text) if path.suffix.lower() == ".csv" else _json_rows(text, path)
    cases = [_case(row, f"{path}, case {number}") for number, row in enumerate(rows, 1)]
    if not cases:
        raise InvalidRequest(f"{path} has no cases.")
    return cases


async def run(
    judge: Judge,
    rule: str,
    cases: Sequence[Case],
    *,
    concurrency: int,
    seconds: float,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[ScoredCase]:
    """The judge's score of every case, in order."""
    limit = asyncio.Semaphore(concurrency)
    done = 0

    async def score(case: Case) -> ScoredCase:
        nonlocal done
        async with limit:
            found: float | None = None
            try:
                async with asyncio.timeout(seconds):
                    found = await judge.score(rule, case.text)
            except (Inconclusive, TimeoutError):
                pass  # counted as what it is, below
            done += 1
            on_progress(done)
            return ScoredCase(case, found)

    try:
        return list(await asyncio.gather(*(score(case) for case in cases)))
    finally:
        await judge.close()


def accuracy_at(threshold_basis_points: int, scored: Iterable[ScoredCase]) -> Accuracy:
    """The accuracy over the cases that have an expectation and a score."""
    known = [
        (each.score * 10_000 >= threshold_basis_points, each.case.expected)
        for each in scored
        if each.score is not None and each.case.expected is not None
    ]
    return Accuracy(
        threshold_basis_points=threshold_basis_points,
        true_positives=known.count((True, True)),
        false_positives=known.count((True, False)),
        false_negatives=known.count((False, True)),
        true_negatives=known.count((False, False)),
    )


def histogram(scored: Iterable[ScoredCase]) -> list[int]:
    """How many scores are in each tenth of the way from no to yes."""
    bins = [0] * BINS
    for each in scored:
        if each.score is not None:
            bins[min(BINS - 1, int(each.score * BINS))] += 1
    return bins


def report(scored: Sequence[ScoredCase], threshold_basis_points: int) -> dict[str, Any]:
    """The whole outcome of a backtest, as one object."""
    thresholds = sorted({*SWEEP, threshold_basis_points})
    return {
        "cases": len(scored),
        "inconclusive": sum(each.score is None for each in scored),
        "at_threshold": _row(accuracy_at(threshold_basis_points, scored)),
        "histogram": histogram(scored),
        "sweep": [_row(accuracy_at(threshold, scored)) for threshold in thresholds],
    }


def _row(accuracy: Accuracy) -> dict[str, Any]:
    return {
        "threshold_basis_points": accuracy.threshold_basis_points,
        "precision": accuracy.precision,
        "recall": accuracy.recall,
        "true_positives": accuracy.true_positives,
        "false_positives": accuracy.false_positives,
        "false_negatives": accuracy.false_negatives,
        "true_negatives": accuracy.true_negatives,
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _csv_rows(text: str) -> Iterable[Any]:
    return csv.DictReader(text.splitlines(keepends=True))


def _json_rows(text: str, path: Path) -> Iterable[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidRequest(f"{path}, line {number} is not JSON: {error.msg}.") from None


def _case(row: Any, where: str) -> Case:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise InvalidRequest(f"{where} has no `text`.")
    expected = row.get("expected")
    if expected is None or expected == "":
        return Case(row["text"])
    word = str(expected).strip().lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise InvalidRequest(f"{where}: `expected` is true or false, not {expected!r}.")
    return Case(row["text"], word in TRUE_WORDS)
