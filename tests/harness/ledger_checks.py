"""The ledger's invariants as one assertion, for every test that touches money."""

from __future__ import annotations

from datetime import datetime

from billing.ledger.invariants import audit


def assert_books_balance(now: datetime | None = None) -> None:
    """Every invariant holds, orphans included, as of `now`."""
    broken = [
        f"{finding.invariant.name}: {finding.count} rows, for example {finding.examples}"
        for finding in audit(now)
        if finding.count
    ]
    assert not broken, "\n".join(broken)
