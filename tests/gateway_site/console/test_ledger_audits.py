"""The ledger is audited on a schedule and by command, and people see what was found."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing import tasks
from billing.ledger import audits
from billing.ledger.invariants import INVARIANTS
from billing.models import Account, LedgerAudit
from tests.billing.factories import Customer, make_customer
from tests.gateway_site.console.clients import owner, person
from tests.harness.ledger_checks import assert_books_balance

LIST = "/admin/billing/ledgeraudit/"


@pytest.fixture
def acme(db: None) -> Customer:
    return make_customer(credit=1_000)


@pytest.fixture
def broken(acme: Customer) -> None:
    Account.objects.update(granted_nanousd=F("granted_nanousd") + 1)


def test_an_audit_of_sound_books_is_kept(acme: Customer) -> None:
    findings = audits.audit_and_record()

    kept = LedgerAudit.objects.get()
    assert len(findings) == len(INVARIANTS)
    assert (kept.broken, kept.findings) == (0, [])
    assert kept.seconds >= 0
    assert_books_balance()


def test_the_command_keeps_what_it_prints(broken: None) -> None:
    out = StringIO()

    with pytest.raises(CommandError, match="1 invariants") as failed:
        call_command("audit_ledger", "--json", stdout=out)

    kept = LedgerAudit.objects.get()
    assert failed.value.returncode == 1
    assert kept.broken == 1
    assert kept.findings == json.loads(out.getvalue())["broken"]
    assert kept.findings[0]["name"] == "granted_equals_grants"


def test_the_schedule_keeps_one_and_says_what_is_broken(
    broken: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        tasks.audit_ledger()

    assert LedgerAudit.objects.get().broken == 1
    assert "granted_equals_grants" in caplog.text
    entry = settings.CELERY_BEAT_SCHEDULE["audit-ledger"]
    assert entry["task"] == tasks.audit_ledger.name
    assert entry["options"]["expires"] == entry["schedule"].total_seconds()


def test_only_the_newest_audits_are_kept(acme: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "KEPT", 3)
    for _ in range(5):
        audits.audit_and_record()

    assert LedgerAudit.objects.count() == 3
    newest = LedgerAudit.objects.order_by("-id").first()
    audits.audit_and_record()
    assert LedgerAudit.objects.filter(pk=newest.pk if newest else None).exists()


def test_an_audit_runs_without_a_statement_timeout(acme: Customer) -> None:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        audits.audit_and_record()

    statements = [query["sql"] for query in asked]
    lifted = [sql for sql in statements if "statement_timeout = 0" in sql]
    if connection.vendor == "postgresql":
        # For its own transaction only: the next one has its limit again.
        assert lifted == ["SET LOCAL statement_timeout = 0"]
    else:
        # As a writer it would make the ledger wait.
        assert not [sql for sql in statements[: len(INVARIANTS)] if sql.startswith(("BEGIN", "SAVEPOINT"))]


def test_people_read_what_was_found(broken: None, django_assert_max_num_queries: Any) -> None:
    for _ in range(5):
        audits.audit_and_record()
    ada = owner()

    with django_assert_max_num_queries(8):
        page = ada.get(LIST)
    one = ada.get(reverse("admin:billing_ledgeraudit_change", args=[LedgerAudit.objects.all()[0].pk]))

    assert page.status_code == one.status_code == 200
    assert "granted_equals_grants" in page.content.decode()
    assert "sum of its grants" in one.content.decode()


def test_nobody_adds_changes_or_deletes_an_audit_by_hand(broken: None) -> None:
    audits.audit_and_record()
    ada, row = owner(), LedgerAudit.objects.get()

    assert ada.get(f"{LIST}add/").status_code == 403
    assert ada.post(f"{LIST}{row.pk}/change/", {"broken": "0"}).status_code == 403
    assert ada.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert person("billing.view_account").get(LIST).status_code == 403
    row.refresh_from_db()
    assert row.broken == 1


def test_a_finding_is_text_whatever_is_in_it(db: None) -> None:
    finding = {"name": "x", "meaning": "y", "count": 1, "examples": ["<script>alert(1)</script>"]}
    row = LedgerAudit.objects.create(seconds=1, broken=1, findings=[finding])

    page = owner().get(reverse("admin:billing_ledgeraudit_change", args=[row.pk])).content.decode()

    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
