"""
Moves costs from UnrolledCost to DailyCost, each exactly once.

A batch is one transaction that deletes rows and adds what it deleted. So a run that is repeated, that meets
another, or that is killed halfway changes no sum: a row is in one of the two tables at every moment.
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import F

from billing.models import DailyCost

# Rows in one transaction: some tens of milliseconds, so that nobody waits long for a day's row.
BATCH = 5_000

COLUMNS = "organization_id, day, project_id, api_key_id, line_item"
# In one order, so that two runs that add to the same days wait for each other and never in a circle.
# (`WHERE true` is for SQLite, which would take ON CONFLICT for a join otherwise.)
ADD_TO_DAYS = f"""
INSERT INTO billing_dailycost ({COLUMNS}, quantity, amount_nanousd, lines)
SELECT {COLUMNS}, SUM(quantity), SUM(amount_nanousd), SUM(lines) FROM taken WHERE true
GROUP BY {COLUMNS} ORDER BY {COLUMNS}
ON CONFLICT ({COLUMNS}) DO UPDATE SET quantity = billing_dailycost.quantity + excluded.quantity,
    amount_nanousd = billing_dailycost.amount_nanousd + excluded.amount_nanousd,
    lines = billing_dailycost.lines + excluded.lines
"""  # noqa: S608 - the names are above
# What another run has locked is that run's to move. ARRAY, because a plain subquery may run more than once
# and lock more rows than its limit each time.
MOVE_POSTGRESQL = f"""
WITH taken AS (
    DELETE FROM billing_unrolledcost WHERE id = ANY(ARRAY(
        SELECT id FROM billing_unrolledcost ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING *
), added AS ({ADD_TO_DAYS})
SELECT COUNT(*) FROM taken
"""  # noqa: S608
# SQLite has one writer, so both statements see the same rows.
FIRST_ROWS = "SELECT * FROM billing_unrolledcost ORDER BY id LIMIT %s"
ADD_SQLITE = f"WITH taken AS ({FIRST_ROWS}) {ADD_TO_DAYS}"
DELETE_SQLITE = f"DELETE FROM billing_unrolledcost WHERE id IN (SELECT id FROM ({FIRST_ROWS}))"  # noqa: S608

# One statement, so it sees one instant, however busy the ledger is.
DIFFERENCES = f"""
SELECT {COLUMNS}, SUM(quantity), SUM(amount_nanousd), SUM(lines)
FROM (
    SELECT {COLUMNS}, quantity, amount_nanousd, 1 AS lines FROM billing_costline
    UNION ALL SELECT {COLUMNS}, -quantity, -amount_nanousd, -lines FROM billing_unrolledcost
    UNION ALL SELECT {COLUMNS}, -quantity, -amount_nanousd, -lines FROM billing_dailycost
) AS every_cost
GROUP BY {COLUMNS} HAVING SUM(quantity) <> 0 OR SUM(amount_nanousd) <> 0 OR SUM(lines) <> 0
ORDER BY {COLUMNS}
"""  # noqa: S608
# Any number that is nobody else's: two repairs at once would both add the same difference.
REPAIR_LOCK = 7_230_145_001


def roll_up(limit: int | None = None) -> int:
    """Move the oldest rows, all there are unless a `limit` is given; the number that were moved."""
    moved = 0
    while limit is None or moved < limit:
        size = BATCH if limit is None else min(BATCH, limit - moved)
        taken = _move(size)
        moved += taken
        # Fewer than asked for: that was all, or another run has the rest.
        if taken < size:
            break
    return moved


@transaction.atomic
def _move(size: int) -> int:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(MOVE_POSTGRESQL, [size])
            return int(cursor.fetchone()[0])
        cursor.execute(ADD_SQLITE, [size])
        cursor.execute(DELETE_SQLITE, [size])
        moved: int = cursor.rowcount
        return moved


@transaction.atomic
def repair() -> int:
    """
    Add what the sums lack of the cost lines, or have too much: the number of sums that were wrong.

    Only a hand that changed a table past the ledger can make it more than 0. Reads every line there is.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [REPAIR_LOCK])
            cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(DIFFERENCES)
        wrong = cursor.fetchall()
    for organization, day, project, api_key, line_item, quantity, amount, lines in wrong:
        cell, _ = DailyCost.objects.get_or_create(
            organization_id=organization,
            day=day,
            project_id=project,
            api_key_id=api_key,
            line_item=line_item,
            defaults={"quantity": 0, "amount_nanousd": 0, "lines": 0},
        )
        # A difference may be added whatever a roll-up has moved since: that changes no sum.
        DailyCost.objects.filter(pk=cell.pk).update(
            quantity=F("quantity") + int(quantity),
            amount_nanousd=F("amount_nanousd") + int(amount),
            lines=F("lines") + int(lines),
        )
    return len(wrong)
