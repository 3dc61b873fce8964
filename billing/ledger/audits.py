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
    checks = _audit_without_timeout()
    broken = [check_to_json(check) for check in checks if check.count]
    LedgerAudit.objects.create(
        seconds=round(time.monotonic() - began, 3), broken=len(broken), findings=broken
    )
    _delete_old_audits()
    return checks


def check_to_json(check: InvariantCheck) -> dict[str, Any]:
    """One check as it is stored, and as `audit_ledger` prints it."""
    return {
        "name": check.invariant.name,
        "meaning": check.invariant.meaning,
        "count": check.count,
        "examples": check.examples,
    }


def _audit_without_timeout() -> list[InvariantCheck]:
    if connection.vendor != "postgresql":
        # Without a transaction: on SQLite it would be a writer's, and the ledger would wait for all of it.
        return audit()
    with transaction.atomic():
        # It reads whole tables, and one that is cut short says nothing about them.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
        return audit()


def _delete_old_audits() -> None:
    newest = LedgerAudit.objects.order_by("-id").values_list("id", flat=True)
    oldest_kept = newest[KEPT - 1 : KEPT].first()
    if oldest_kept is not None:
        LedgerAudit.objects.filter(id__lt=oldest_kept).delete()
