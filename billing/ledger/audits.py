"""Checks the books and keeps what was found, for the console's banner."""

from __future__ import annotations

import time
from typing import Any

from django.db import connection, transaction

from billing.ledger.invariants import InvariantCheck, audit
from billing.models import LedgerAudit

# Seven weeks of them, at one in six hours.
KEPT = 200


def audit_and_record() -> list[InvariantCheck]:
    """Check every invariant and store a LedgerAudit. What is wrong has a count above zero."""
    began = time.monotonic()
    findings = _unhurried_audit()
    broken = [described(finding) for finding in findings if finding.count]
    LedgerAudit.objects.create(
        seconds=round(time.monotonic() - began, 3), broken=len(broken), findings=broken
    )
    _forget_old()
    return findings


def described(finding: InvariantCheck) -> dict[str, Any]:
    """A finding as it is stored, and as `audit_ledger` prints it."""
    return {
        "name": finding.invariant.name,
        "meaning": finding.invariant.meaning,
        "count": finding.count,
        "examples": finding.examples,
    }


def _unhurried_audit() -> list[InvariantCheck]:
    if connection.vendor != "postgresql":
        # Without a transaction: on SQLite it would be a writer's, and the ledger would wait for all of it.
        return audit()
    with transaction.atomic():
        # It reads whole tables, and one that is cut short says nothing about them.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
        return audit()


def _forget_old() -> None:
    newest = LedgerAudit.objects.order_by("-id").values_list("id", flat=True)
    oldest_kept = newest[KEPT - 1 : KEPT].first()
    if oldest_kept is not None:
        LedgerAudit.objects.filter(id__lt=oldest_kept).delete()
