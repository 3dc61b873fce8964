"""
What must be true of the books at every moment, as SQL that returns the rows for which it is not.

Each is one statement, and so sees one instant, however busy the ledger is. Portable to both databases.
Append to INVARIANTS to have `audit_ledger` and the tests check one more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

# A sweep may be on its way.
ORPHAN_GRACE = timedelta(seconds=10)
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Invariant:
    """A rule of the books, and the statement that finds the rows that break it."""

    name: str
    meaning: str
    sql: str


@dataclass(frozen=True, slots=True)
class InvariantCheck:
    """How many rows an invariant does not hold for, with some of them."""

    invariant: Invariant
    count: int
    examples: list[str]


# What each request holds and was charged, and each difference that a correction made: whose, and of when.
AMOUNTS = """
    SELECT organization_id, project_id, api_key_id, admitted_at,
        CASE WHEN state IN ('held', 'unknown') THEN reserved_nanousd ELSE 0 END AS held,
        CASE WHEN state = 'settled' THEN charged_nanousd ELSE 0 END AS settled
    FROM billing_reservation
    UNION ALL
    SELECT r.organization_id, r.project_id, r.api_key_id, r.admitted_at,
        0, j.charged_after_nanousd - j.charged_before_nanousd
    FROM billing_costadjustment j JOIN billing_reservation r ON r.id = j.reservation_id
"""

INVARIANTS: list[Invariant] = [
    Invariant(
        "granted_equals_grants",
        "An account's granted credit is the sum of its grants.",
        """
        SELECT a.organization_id, a.granted_nanousd, COALESCE(SUM(g.amount_nanousd), 0)
        FROM billing_account a LEFT JOIN billing_creditgrant g ON g.account_id = a.organization_id
        GROUP BY a.organization_id, a.granted_nanousd
        HAVING a.granted_nanousd <> COALESCE(SUM(g.amount_nanousd), 0)
        """,
    ),
    Invariant(
        "held_equals_open_reservations",
        "An account's held credit is the sum of its open reservations.",
        """
        SELECT a.organization_id, a.held_nanousd, COALESCE(SUM(r.reserved_nanousd), 0)
        FROM billing_account a LEFT JOIN billing_reservation r
            ON r.organization_id = a.organization_id AND r.state IN ('held', 'unknown')
        GROUP BY a.organization_id, a.held_nanousd
        HAVING a.held_nanousd <> COALESCE(SUM(r.reserved_nanousd), 0)
        """,
    ),
    Invariant(
        "settled_equals_charges",
        "An account's settled credit is the sum of what its requests were charged, corrections included.",
        f"""
        SELECT a.organization_id, a.settled_nanousd, COALESCE(SUM(m.settled), 0)
        FROM billing_account a LEFT JOIN ({AMOUNTS}) AS m ON m.organization_id = a.organization_id
        GROUP BY a.organization_id, a.settled_nanousd
        HAVING a.settled_nanousd <> COALESCE(SUM(m.settled), 0)
        """,  # noqa: S608 - made of statements of our own
    ),
    Invariant(
        "never_overdrawn",
        "No account has promised or spent more than it was granted.",
        """
        SELECT organization_id FROM billing_account
        WHERE granted_nanousd < held_nanousd + settled_nanousd OR held_nanousd < 0 OR settled_nanousd < 0
        """,
    ),
    Invariant(
        "charge_within_hold",
        "No request was charged more than was held for it.",
        "SELECT id FROM billing_reservation WHERE charged_nanousd > reserved_nanousd",
    ),
    Invariant(
        "lines_equal_charge",
        "A settled request has cost lines that sum to its charge, corrections included; no other has any.",
        """
        SELECT r.id, r.state, r.charged_nanousd, j.difference, l.amount
        FROM billing_reservation r
        LEFT JOIN (SELECT reservation_id, SUM(amount_nanousd) AS amount
            FROM billing_costline GROUP BY reservation_id) AS l ON l.reservation_id = r.id
        LEFT JOIN (SELECT reservation_id, SUM(charged_after_nanousd - charged_before_nanousd) AS difference
            FROM billing_costadjustment GROUP BY reservation_id) AS j ON j.reservation_id = r.id
        WHERE (r.state = 'settled'
                AND (l.amount IS NULL OR r.charged_nanousd + COALESCE(j.difference, 0) <> l.amount))
            OR (r.state <> 'settled' AND (l.amount IS NOT NULL OR j.difference IS NOT NULL))
        """,
    ),
    Invariant(
        "adjustments_chain",
        "An adjustment goes on from what was charged before it, and its own lines sum to its difference.",
        """
        SELECT j.reservation_id, j.revision FROM billing_costadjustment j
        LEFT JOIN billing_reservation r ON r.id = j.reservation_id
        LEFT JOIN billing_costadjustment p
            ON p.reservation_id = j.reservation_id AND p.revision = j.revision - 1
        LEFT JOIN (SELECT reservation_id, revision, SUM(amount_nanousd) AS amount FROM billing_costline
            WHERE revision > 0 GROUP BY reservation_id, revision) AS l
            ON l.reservation_id = j.reservation_id AND l.revision = j.revision
        WHERE r.id IS NULL OR r.organization_id <> j.organization_id OR (j.revision > 1 AND p.id IS NULL)
            OR j.charged_before_nanousd <> COALESCE(p.charged_after_nanousd, r.charged_nanousd)
            OR j.from_version_id <> COALESCE(p.to_version_id, r.price_version_id)
            OR j.charged_after_nanousd - j.charged_before_nanousd <> COALESCE(l.amount, 0)
        UNION ALL
        SELECT l.reservation_id, l.revision FROM billing_costline l LEFT JOIN billing_costadjustment j
            ON j.reservation_id = l.reservation_id AND j.revision = l.revision
        WHERE l.revision > 0 AND j.id IS NULL
        """,
    ),
    Invariant(
        "lines_belong_to_their_request",
        "A cost line names its request's organization, project, key and time of admission.",
        """
        SELECT l.id FROM billing_costline l LEFT JOIN billing_reservation r ON r.id = l.reservation_id
        WHERE r.id IS NULL OR l.organization_id <> r.organization_id OR l.project_id <> r.project_id
            OR l.api_key_id <> r.api_key_id OR l.admitted_at <> r.admitted_at
            OR l.day <> DATE(r.admitted_at)
        """,
    ),
    Invariant(
        "reservations_belong_together",
        "A reservation's key is of its project, and its project of its organization, which has an account.",
        """
        SELECT r.id FROM billing_reservation r
        LEFT JOIN organization_projectkey k ON k.id = r.api_key_id AND k.project_id = r.project_id
        LEFT JOIN organization_project p ON p.id = r.project_id AND p.organization_id = r.organization_id
        LEFT JOIN billing_account a ON a.organization_id = r.organization_id
        WHERE k.id IS NULL OR p.id IS NULL OR a.organization_id IS NULL
        """,
    ),
    Invariant(
        "caps_mirror_reservations",
        "A cap's period counts exactly the requests of its scope admitted in it, within its ceiling.",
        f"""
        SELECT p.id FROM billing_capperiod p JOIN billing_spendingcap c ON c.id = p.cap_id
        LEFT JOIN ({AMOUNTS}) AS m ON m.organization_id = c.organization_id
            AND (c.project_id IS NULL OR c.project_id = m.project_id)
            AND (c.api_key_id IS NULL OR c.api_key_id = m.api_key_id)
            AND m.admitted_at >= p.starts_at AND (p.ends_at IS NULL OR m.admitted_at < p.ends_at)
        GROUP BY p.id, p.held_nanousd, p.settled_nanousd, p.ceiling_nanousd
        HAVING p.held_nanousd <> COALESCE(SUM(m.held), 0) OR p.settled_nanousd <> COALESCE(SUM(m.settled), 0)
            OR p.held_nanousd + p.settled_nanousd > p.ceiling_nanousd
        """,  # noqa: S608 - made of statements of our own
    ),
    Invariant(
        "meters_mirror_holds",
        "A key's live holds are its held reservations.",
        """
        SELECT r.api_key_id, COUNT(*), MAX(m.live_holds)
        FROM billing_reservation r LEFT JOIN billing_keymeter m ON m.api_key_id = r.api_key_id
        WHERE r.state = 'held' GROUP BY r.api_key_id
        HAVING MAX(m.live_holds) IS NULL OR COUNT(*) <> MAX(m.live_holds)
        UNION ALL
        SELECT m.api_key_id, 0, m.live_holds FROM billing_keymeter m
        WHERE m.live_holds <> 0 AND NOT EXISTS (
            SELECT 1 FROM billing_reservation r WHERE r.api_key_id = m.api_key_id AND r.state = 'held')
        """,
    ),
    Invariant(
        "nothing_orphaned",
        "No hold outlives its lease by more than another lease and a sweep.",
        "SELECT id FROM billing_reservation WHERE state = 'held' AND lease_expires_at < %(orphaned)s",
    ),
    Invariant(
        "rollup_equals_lines",
        "Daily costs, with what is not rolled up yet, are the sums of the cost lines.",
        """
        SELECT organization_id, day, project_id, api_key_id, line_item,
               SUM(amount_nanousd), SUM(quantity), SUM(lines)
        FROM (
            SELECT organization_id, day, project_id, api_key_id, line_item, amount_nanousd, quantity, lines
            FROM billing_dailycost
            UNION ALL
            SELECT organization_id, day, project_id, api_key_id, line_item, amount_nanousd, quantity, lines
            FROM billing_unrolledcost
            UNION ALL
            SELECT organization_id, day, project_id, api_key_id, line_item, -amount_nanousd, -quantity, -1
            FROM billing_costline
        ) AS every_cost
        GROUP BY organization_id, day, project_id, api_key_id, line_item
        HAVING SUM(amount_nanousd) <> 0 OR SUM(quantity) <> 0 OR SUM(lines) <> 0
        """,
    ),
]


def audit(now: datetime | None = None) -> list[InvariantCheck]:
    """Check every invariant. What is wrong has a count above zero."""
    # The sweeper watches what has run out for a lease before it decides.
    due_seconds = settings.GATEWAY_LEASE_SECONDS + settings.GATEWAY_SWEEP_SECONDS
    sweep_due = timedelta(seconds=due_seconds) + ORPHAN_GRACE
    orphaned = connection.ops.adapt_datetimefield_value((now or timezone.now()) - sweep_due)
    checks = []
    for invariant in INVARIANTS:
        with connection.cursor() as cursor:
            # Only where one is used: otherwise `%` would need doubling in every statement.
            values = {"orphaned": orphaned} if "%(" in invariant.sql else None
            cursor.execute(invariant.sql, values)
            rows = cursor.fetchall()
        checks.append(InvariantCheck(invariant, len(rows), [str(row) for row in rows[:EXAMPLES]]))
    return checks
