"""A judge is one module and one row of JUDGES: a toy one is used wherever policies are judged."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from billing.models import Reservation
from organization.models import Project
from policies.judges import current_judge
from policies.judges.registry import JUDGES, JudgeKind, chosen_kind
from policies.models import Policy
from tests.harness.error_checks import assert_error
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.customer import customer_of
from tests.policies.factories import make_published, noted

RULE = "Is the text shouted?"
SHOUTED = "GIVE ME THE REPORT"
MODULE = '''
from policies.judges import Inconclusive


class ShoutingJudge:
    """Answers one question, which no other judge here understands."""

    name = "shouting"

    def __init__(self, *, share):
        self._share = share

    async def score(self, rule, text, *, salt=""):
        if "shouted" not in rule:
            raise Inconclusive("not a question about shouting")
        letters = [letter for letter in text if letter.isalpha()]
        loud = sum(map(str.isupper, letters))
        return 1.0 if letters and loud / len(letters) >= self._share else 0.0

    async def close(self):
        """Nothing is open."""
'''


@pytest.fixture
def toy_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[JudgeKind]:
    """The row of a judge from a module that is there for one test, chosen by a setting of its own."""
    (tmp_path / "shouting_judge.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("shouting_judge")
    kind = JudgeKind(
        make=module.ShoutingJudge,
        answers="whether a text is shouted",
        chosen_by="TOY_JUDGE_SHARE",
        settings={"share": "TOY_JUDGE_SHARE"},
    )
    monkeypatch.setitem(JUDGES, "shouting", kind)
    settings.TOY_JUDGE_SHARE = 0.9
    yield kind
    del sys.modules["shouting_judge"]


def test_the_setting_of_a_row_chooses_its_judge(toy_kind: JudgeKind, settings: Any) -> None:
    assert chosen_kind() is toy_kind
    assert current_judge().name == "shouting"
    assert current_judge() is current_judge()

    settings.TOY_JUDGE_SHARE = None

    assert current_judge().name == "quoted"


@pytest.fixture
def customer(transactional_db: None, project: Project) -> Iterator[Any]:
    """Acme's application, with credit and a model that echoes. At its end, the books balance."""
    with customer_of(project) as made:
        made.simulate("echo")
        yield made


def test_a_chat_request_that_the_toy_judge_matches_is_refused(
    customer: Any, acme: Any, toy_kind: JudgeKind
) -> None:
    policy = make_published(acme, rule=RULE, direction="request")

    refused = customer.ask("echo", SHOUTED)
    answered = customer.ask("echo", "please give me the report")

    assert_error(refused, 403, "policy_violation")
    assert str(policy.pk) in json.dumps(refused.error)
    assert answered.status == 200
    assert [(verdict.judge, verdict.outcome) for verdict in noted()] == [
        ("shouting", "match"),
        ("shouting", "no_match"),
    ]
    states = list(Reservation.objects.order_by("admitted_at").values_list("state", flat=True))
    assert states == [Reservation.State.RELEASED, Reservation.State.SETTLED]
    assert_books_balance()


def test_a_question_that_the_toy_judge_cannot_answer_is_a_503(
    customer: Any, acme: Any, toy_kind: JudgeKind
) -> None:
    make_published(acme, direction="request")

    assert_error(customer.ask("echo"), 503, "policy_not_judged")
    assert_books_balance()


def test_the_console_tries_a_draft_with_the_toy_judge(acme: Any, toy_kind: JudgeKind) -> None:
    policy = make_published(acme, rule=RULE)
    console = Client()
    console.force_login(get_user_model().objects.create_superuser("ada", password="x"))

    def tried(text: str) -> str:
        address = reverse("admin:policies_policy_try", args=[policy.pk])
        return console.post(address, {"text": text}).content.decode()

    assert "<strong>Match</strong>" in tried(SHOUTED)
    assert "shouting" in tried(SHOUTED)
    assert "<strong>No match</strong>" in tried("please")


def test_a_backtest_asks_the_toy_judge(acme: Any, toy_kind: JudgeKind, tmp_path: Path) -> None:
    policy: Policy = make_published(acme, rule=RULE)
    cases = tmp_path / "cases.jsonl"
    rows = [{"text": SHOUTED, "expected": True}, {"text": "please", "expected": False}]
    cases.write_text("\n".join(map(json.dumps, rows)))
    printed = io.StringIO()

    call_command("backtest_policy", str(policy.pk), "--cases", str(cases), "--json", stdout=printed)

    outcome = json.loads(printed.getvalue())
    assert (outcome["judge"], outcome["cases"], outcome["inconclusive"]) == ("shouting", 2, 0)
    assert (outcome["at_threshold"]["precision"], outcome["at_threshold"]["recall"]) == (1.0, 1.0)
