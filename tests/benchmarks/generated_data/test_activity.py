"""An operator fills an organization with made-up requests to measure with, and the days are their sums."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inference.activity.writer import daily, gains_of
from inference.models import Activity, DailyActivity
from organization.models import Organization
from policies.models import DailyVerdicts, Verdict
from tests.benchmarks.generated_data import activity, requests

pytestmark = pytest.mark.usefixtures("db")


def generate(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(activity.GenerateActivity(), *arguments, "--json", stdout=out, stderr=StringIO())
    made: dict[str, Any] = json.loads(out.getvalue())
    return made


def kept_sums() -> dict[Any, list[int]]:
    cells = ("day", "organization_id", "project_id", "api_key_id", "model")
    return {row[:5]: list(row[5:]) for row in DailyActivity.objects.values_list(*cells, *daily.sums)}


def test_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "BATCH", 1_300)  # some batches, one of them not full
    monkeypatch.setattr(requests, "TEMPLATES", 300)  # so that each is there several times a day

    made = generate("Load", "--requests=3000", "--days=3", "--keys=7", "--projects=3", "--verdicts")

    rows = list(Activity.objects.all())
    assert (made["requests"], len(rows)) == (3_000, 3_000)
    assert {row.organization_id for row in rows} == {Organization.objects.get(name="Load").pk}
    assert kept_sums() == gains_of(rows)
    assert {200, 429} <= {row.status for row in rows}
    assert all(row.created_at <= row.ended_at for row in rows)
    assert len({str(row.pk)[:2] for row in rows}) == 256
    matches = Verdict.objects.filter(outcome="match").count()
    assert Verdict.objects.count() == made["verdicts"] > 0
    assert sum(DailyVerdicts.objects.values_list("matches", flat=True)) == matches > 0


def test_nothing_made_up_is_mixed_with_real_requests(acme: Organization) -> None:
    generate("Load", "--requests=10")

    for name in ("Load", acme.name):
        with pytest.raises(CommandError, match="already"):
            generate(name, "--requests=10")


@pytest.mark.parametrize(
    "bad", ["--requests=0", "--requests=200000001", "--days=0", "--keys=0", "--models=101"]
)
def test_the_bounds(bad: str) -> None:
    with pytest.raises(CommandError, match="must be from"):
        generate("Load", "--requests=10", bad)
