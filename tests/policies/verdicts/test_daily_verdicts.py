"""How often a policy matched on a day is kept, also after the verdicts themselves are gone."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from organization.models import Organization, Project
from policies.models import DailyVerdicts, Policy, PolicyVersion, Verdict
from policies.verdicts import retention
from policies.verdicts.writer import daily, insert_verdicts
from tests.harness.isolation.connections import close_connections
from tests.policies.factories import make_published

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCORES = {"match": 0.9, "no_match": 0.1, "inconclusive": None}


def verdict(version: PolicyVersion | None, project: Project, outcome: str, **fields: Any) -> Verdict:
    return Verdict(
        **{
            "occurred_at": NOON,
            "version": version,
            "project": project,
            "request_id": uuid.uuid4(),
            "direction": "request",
            "mode": "monitoring",
            "outcome": outcome,
            "score": SCORES[outcome],
            "threshold_basis_points": 5_000,
            "judge": "quoted",
            "latency_ms": 1,
            **fields,
        }
    )


def kept() -> set[tuple[Any, ...]]:
    return set(DailyVerdicts.objects.values_list("day", "version", "matches", "no_matches", "inconclusive"))


def assert_sums_are_of_rows() -> None:
    counts = Counter((row.occurred_at.date(), row.version_id, row.outcome) for row in Verdict.objects.all())
    cells = {(day, version) for day, version, _ in counts}
    assert kept() == {(*cell, *(counts[*cell, outcome] for outcome in SCORES)) for cell in cells}


def write(*rows: Verdict) -> None:
    insert_verdicts(rows)


def test_it_works(published: Policy, project: Project) -> None:
    version = published.current_version
    write(*(verdict(version, project, outcome) for outcome in ("match", "match", "no_match", "inconclusive")))
    write(verdict(version, project, "match"))

    assert version is not None
    assert kept() == {(date(2026, 3, 1), version.pk, 3, 1, 1)}
    assert_sums_are_of_rows()


def test_each_version_and_day_has_its_own(acme: Organization, rival: Organization, project: Project) -> None:
    ours, theirs = (make_published(each).current_version for each in (acme, rival))
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    write(
        verdict(ours, project, "match", occurred_at=midnight - timedelta(microseconds=1)),
        verdict(ours, project, "match", occurred_at=midnight),
        verdict(theirs, project, "no_match", occurred_at=midnight),
    )

    assert len(kept()) == 3
    assert_sums_are_of_rows()


@pytest.mark.django_db(transaction=True)
def test_one_that_the_database_refuses_is_not_counted_and_the_others_are(
    published: Policy, project: Project
) -> None:
    version = published.current_version
    impossible = verdict(version, project, "match", score=None)

    write(verdict(version, project, "match"), impossible, verdict(version, project, "no_match"))

    assert version is not None
    assert kept() == {(date(2026, 3, 1), version.pk, 1, 1, 0)}
    assert_sums_are_of_rows()


@pytest.mark.django_db(transaction=True)
def test_rows_and_sums_come_together_or_not_at_all(
    published: Policy, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gains: Any) -> None:
        raise OperationalError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(daily, "add", fail)
        with pytest.raises(OperationalError):
            write(verdict(published.current_version, project, "match"))

    assert not Verdict.objects.exists()
    assert kept() == set()


def test_the_sums_outlive_the_verdicts(published: Policy, project: Project) -> None:
    write(
        verdict(
            published.current_version, project, "match", occurred_at=timezone.now() - timedelta(days=4_000)
        )
    )
    before = kept()

    assert retention.prune_verdicts() == 1

    assert not Verdict.objects.exists()
    assert kept() == before


@pytest.mark.django_db(transaction=True)
def test_several_writers_add_to_one_day_and_nothing_is_lost(
    acme: Organization, rival: Organization, project: Project
) -> None:
    versions = [make_published(each).current_version for each in (acme, rival)]
    failures: list[BaseException] = []

    def add_many(order: int) -> None:
        try:
            for _ in range(20):
                write(*(verdict(version, project, "match") for version in versions[::order]))
        except OperationalError as error:
            failures.append(error)
        close_connections()

    threads = [threading.Thread(target=add_many, args=[order]) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not failures
    assert {row[2] for row in kept()} == {40}
    assert_sums_are_of_rows()
