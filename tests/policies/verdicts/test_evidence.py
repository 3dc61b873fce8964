"""An operator sees what a rule does before it is enforced."""

from __future__ import annotations

import io
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import timezone

from organization.models import AuditEvent, Organization, Project
from policies import backtest, services
from policies.backtest import Case, ScoredCase
from policies.models import Policy, Verdict
from policies.tasks import prune_verdicts
from policies.verdicts import records
from policies.verdicts.writer import writer
from tests.factories import SOMEONE
from tests.policies.factories import PHRASE, make_policy, verdict

CASES: list[dict[str, Any]] = [
    {"text": f"this is {PHRASE}", "expected": True},
    {"text": "INTERNAL ONLY", "expected": "yes"},
    {"text": "for our eyes", "expected": True},
    {"text": "hello", "expected": False},
    {"text": f"{PHRASE} is a phrase", "expected": 0},
    {"text": "no expectation"},
]


def run(*words: str) -> dict[str, Any]:
    printed = io.StringIO()
    call_command(*words, "--json", stdout=printed)
    outcome: dict[str, Any] = json.loads(printed.getvalue())
    return outcome


def say(*words: str) -> str:
    printed = io.StringIO()
    call_command(*words, stdout=printed)
    return printed.getvalue()


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(case) for case in CASES) + "\n")
    return path


# --- a file of cases ----------------------------------------------------------------------------------


def test_it_works(policy: Policy, cases: Path) -> None:
    outcome = run("backtest_policy", str(policy.pk), "--cases", str(cases))

    assert (outcome["cases"], outcome["inconclusive"], outcome["judge"]) == (6, 0, "quoted")
    assert outcome["at_threshold"] == {
        "threshold_basis_points": 5000,
        "precision": pytest.approx(2 / 3),
        "recall": pytest.approx(2 / 3),
        "true_positives": 2,
        "false_positives": 1,
        "false_negatives": 1,
        "true_negatives": 1,
    }
    assert outcome["histogram"] == [3, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    table = say("backtest_policy", str(policy.pk), "--cases", str(cases))
    assert "66.7 %" in table
    assert "6 cases, 0 inconclusive" in table


def test_a_csv_of_the_same_cases_has_the_same_outcome(policy: Policy, tmp_path: Path, cases: Path) -> None:
    path = tmp_path / "cases.csv"
    rows = [f'"{case["text"]}",{case.get("expected", "")}' for case in CASES]
    path.write_text("text,expected\n" + "\n".join(rows) + "\n")

    assert run("backtest_policy", str(policy.pk), "--cases", str(path)) == run(
        "backtest_policy", str(policy.pk), "--cases", str(cases)
    )


def test_the_draft_is_tested_unless_the_published_is_asked_for(published: Policy, cases: Path) -> None:
    services.edit_policy(
        policy=published,
        revision=2,
        changes={"rule": 'Does it say "hello"?', "match_threshold_basis_points": 1234},
        actor=SOMEONE,
    )
    words = ("backtest_policy", str(published.pk), "--cases", str(cases))

    assert run(*words)["at_threshold"]["threshold_basis_points"] == 1234
    assert run(*words)["at_threshold"]["true_positives"] == 0
    assert run(*words, "--published")["at_threshold"]["true_positives"] == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no cases"),
        ("not json", "line 1 is not JSON"),
        ('{"expected": true}', "has no `text`"),
        ('{"text": 5}', "has no `text`"),
        ('{"text": "x", "expected": "perhaps"}', "true or false"),
    ],
)
def test_a_file_that_is_wrong_is_named(policy: Policy, tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(content)

    with pytest.raises(CommandError, match=complaint):
        run("backtest_policy", str(policy.pk), "--cases", str(path))


def test_a_rule_that_the_judge_cannot_answer_is_said(acme: Organization, cases: Path) -> None:
    policy = make_policy(acme, rule="Is it rude?")

    with pytest.raises(CommandError, match="answered for none"):
        say("backtest_policy", str(policy.pk), "--cases", str(cases))


def test_what_is_not_there_is_said(policy: Policy, cases: Path, tmp_path: Path) -> None:
    for words in (("publish_policy", "x"), ("resume_policy", str(uuid.uuid4()))):
        with pytest.raises(CommandError, match="no policy with the id"):
            run(*words)
    with pytest.raises(CommandError, match="cannot be read"):
        run("backtest_policy", str(policy.pk), "--cases", str(tmp_path / "none.jsonl"))
    with pytest.raises(CommandError, match="never published"):
        run("backtest_policy", str(policy.pk), "--cases", str(cases), "--published")


def test_nothing_to_divide_by_is_no_number() -> None:
    empty = backtest.accuracy_at(5000, [ScoredCase(Case("x"), 0.7), ScoredCase(Case("y", True), None)])

    assert (empty.precision, empty.recall) == (None, None)


# --- commands that move it ----------------------------------------------------------------------------


def test_a_policy_is_published_and_resumed_by_command(policy: Policy) -> None:
    assert run("publish_policy", str(policy.pk))["state"] == "monitoring"
    assert run("publish_policy", str(policy.pk), "--mode", "enforcing") == {
        "id": str(policy.pk),
        "name": "Internal",
        "state": "enforcing",
        "version": 2,
        "revision": 3,
    }
    assert "is enforcing, version 2" in say("publish_policy", str(policy.pk))
    services.pause_policy(policy=policy, actor=SOMEONE)

    assert run("resume_policy", str(policy.pk))["state"] == "enforcing"
    assert run("resume_policy", str(policy.pk))["revision"] == 5
    assert AuditEvent.objects.filter(actor_kind="command", actor_label="manage.py resume_policy").count() == 1


def test_a_draft_is_not_resumed(policy: Policy) -> None:
    with pytest.raises(CommandError, match="never published"):
        run("resume_policy", str(policy.pk))


# --- verdicts -----------------------------------------------------------------------------------------


def test_each_threshold_shows_what_it_would_have_blocked(published: Policy, project: Project) -> None:
    scores = [0.04, 0.2, 0.55, 0.55, 0.91, 0.999, None]
    Verdict.objects.bulk_create([verdict(published, project, score) for score in scores])

    found = records.evidence_of(published)

    assert (found.conclusive, found.inconclusive) == (6, 1)
    assert dict(found.blocked) == {
        500: 5,
        1000: 5,
        2000: 5,
        3000: 4,
        4000: 4,
        5000: 4,
        6000: 2,
        7000: 2,
        8000: 2,
        9000: 2,
        9500: 1,
        9900: 1,
    }


def test_a_policy_without_verdicts_has_none(policy: Policy) -> None:
    assert records.evidence_of(policy).conclusive == 0


def test_old_verdicts_are_forgotten(published: Policy, project: Project) -> None:
    old = timezone.now() - timedelta(days=settings.GATEWAY_VERDICT_DAYS, minutes=1)
    Verdict.objects.bulk_create(
        [verdict(published, project, 0.1), verdict(published, project, 0.2, occurred_at=old)]
    )

    prune_verdicts()

    assert Verdict.objects.get().score == 0.1


@pytest.mark.django_db(transaction=True)
def test_a_verdict_that_the_database_refuses_holds_nobody_up(published: Policy, project: Project) -> None:
    nobodys = verdict(published, project, 0.5)
    nobodys.outcome = "unheard of"
    for row in (nobodys, verdict(published, project, 0.5)):
        writer.add(Mock(row=Mock(return_value=row)))
    writer.flush()

    assert Verdict.objects.count() == 1
