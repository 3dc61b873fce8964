"""
The ledger's SQL, written by hand, because every request waits for it. Both databases run the same.

A batch is few statements, because each has a price of its own, on both sides. Rows travel as JSON in both
directions, so a statement's text does not depend on how many there are, and is prepared once. In braces is
what the databases write in different ways: `SqlSyntax` has it.
"""

# ruff: noqa: S608 - made of names of columns and parameters alone

from __future__ import annotations

from typing import Protocol

from billing.ledger.stores import columns
from billing.ledger.stores.columns import Column


class SqlSyntax(Protocol):
    """How one database writes what the ledger's statements need."""

    json_array: str

    def stored(self, column: Column) -> str:
        """A column's value as the row's struct reads it from JSON."""
        ...

    def json_object(self, fields: dict[str, str]) -> str:
        """A JSON object with these fields, each from its SQL."""
        ...

    def select(self, fields: dict[str, str]) -> str:
        """The select list that gives a row these fields, each from its SQL."""
        ...

    def rows(self, fields: dict[str, str], parameter: str) -> str:
        """The table `d` of the rows in a parameter: a column for each field."""
        ...


def row(syntax: SqlSyntax, fields: tuple[Column, ...], **others: str) -> str:
    """The select list of a row: its fields, and others that are SQL already."""
    return syntax.select({**{each.field: syntax.stored(each) for each in fields}, **others})


def _json_object(syntax: SqlSyntax, fields: tuple[Column, ...]) -> str:
    return syntax.json_object({each.field: syntax.stored(each) for each in fields})


# --- what a batch reads ------------------------------------------------------------------------------


def read_accounts(syntax: SqlSyntax, *, organizations: str) -> str:
    fields = row(syntax, columns.ACCOUNT)
    return f"SELECT {fields} FROM billing_account WHERE organization_id {organizations}"


def read_caps(syntax: SqlSyntax, *, organizations: str, now: str) -> str:
    counted = f"""(SELECT {syntax.json_array}({_json_object(syntax, columns.PERIOD)}) FROM billing_capperiod p
        WHERE p.cap_id = c.id AND (p.ends_at IS NULL OR p.ends_at > {now}))"""
    fields = row(syntax, columns.CAP, counted=counted)
    return f"SELECT {fields} FROM billing_spendingcap c WHERE c.organization_id {organizations}"


def read_meters(syntax: SqlSyntax, *, keys: str, reservations: str) -> str:
    """The meters of the keys and of the reservations: the caller of a settlement does not know the key."""
    # A UNION and no OR, which would make PostgreSQL read the whole table.
    return f"""SELECT {row(syntax, columns.METER)} FROM billing_keymeter m WHERE m.api_key_id IN (
        {keys} UNION SELECT r.api_key_id FROM billing_reservation r WHERE r.id {reservations})"""


def read_projects(syntax: SqlSyntax, *, projects: str) -> str:
    return f"SELECT {row(syntax, columns.PROJECT)} FROM organization_project WHERE id {projects}"


def read_keys(syntax: SqlSyntax, *, keys: str) -> str:
    return f"SELECT {row(syntax, columns.KEY)} FROM organization_projectkey WHERE id {keys}"


def read_reservations(syntax: SqlSyntax, *, reservations: str, with_quantities: bool) -> str:
    quantities = columns.RESERVATION_QUANTITIES if with_quantities else ()
    return f"""
SELECT {row(syntax, columns.RESERVATION + quantities)}
FROM billing_reservation r
WHERE r.id {reservations}"""


def read_cards(syntax: SqlSyntax, *, versions: str) -> str:
    return f"SELECT {row(syntax, columns.CARD)} FROM billing_priceversion v WHERE v.id {versions}"


# --- what it writes ----------------------------------------------------------------------------------

WRITES = {
    "accounts": """
UPDATE billing_account AS a
SET held_nanousd = a.held_nanousd + d.held, settled_nanousd = a.settled_nanousd + d.settled
FROM {rows} WHERE a.organization_id = d.organization_id
""",
    # With what it counts at once: on PostgreSQL the parts of a statement do not see each other's rows.
    "new_periods": """
INSERT INTO billing_capperiod AS p
    (cap_id, starts_at, ends_at, ceiling_nanousd, held_nanousd, settled_nanousd)
SELECT d.cap_id, d.starts_at, d.ends_at, d.ceiling, d.held, d.settled FROM {rows} WHERE true
ON CONFLICT (cap_id, starts_at) DO UPDATE
SET held_nanousd = p.held_nanousd + excluded.held_nanousd,
    settled_nanousd = p.settled_nanousd + excluded.settled_nanousd
""",
    "periods": """
UPDATE billing_capperiod AS p
SET held_nanousd = p.held_nanousd + d.held, settled_nanousd = p.settled_nanousd + d.settled
FROM {rows} WHERE p.cap_id = d.cap_id AND p.starts_at = d.starts_at
""",
    "meters": """
INSERT INTO billing_keymeter (api_key_id, live_holds, window_starts_at, window_requests)
SELECT d.key_id, d.live_holds, d.window_starts_at, d.window_requests FROM {rows} WHERE true
ON CONFLICT (api_key_id) DO UPDATE SET live_holds = excluded.live_holds,
    window_starts_at = excluded.window_starts_at, window_requests = excluded.window_requests
""",
    # No condition on the state: it was read under the account's lock, and the trigger refuses what has ended.
    "resolved": """
UPDATE billing_reservation AS r
SET state = d.state, basis = d.basis, ended_by = d.ended_by, reserved_nanousd = d.reserved,
    charged_nanousd = d.charged, operator_loss_nanousd = d.loss, used = COALESCE(d.used, r.used),
    unknown_at = CASE WHEN d.state = 'unknown' THEN {now} ELSE r.unknown_at END,
    resolved_at = CASE WHEN d.state = 'unknown' THEN NULL ELSE {now} END
FROM {rows} WHERE r.id = d.reservation_id
""",
    "reservations": """
INSERT INTO billing_reservation (
    id, organization_id, project_id, api_key_id, model, choices, price_version_id, bounds, reserved_nanousd,
    dispatched_at, deadline_at, state, basis, ended_by, operator_loss_nanousd, admitted_at, lease_expires_at)
SELECT d.id, d.organization_id, d.project_id, d.key_id, d.model, d.choices, d.version_id, d.bounds,
    d.reserved, CASE WHEN d.is_dispatched THEN {now} END, d.deadline_at, 'held', '', '', 0, {now}, {lease}
FROM {rows}
""",
    "lines": """
INSERT INTO billing_costline
    (reservation_id, organization_id, project_id, api_key_id, admitted_at, day, line_item, quantity,
    amount_nanousd, revision)
SELECT d.reservation_id, d.organization_id, d.project_id, d.key_id, d.admitted_at, d.day, d.line_item,
    d.quantity, d.amount, 0
FROM {rows}
""",
    "unrolled": """
INSERT INTO billing_unrolledcost
    (organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd, lines)
SELECT d.organization_id, d.project_id, d.key_id, d.day, d.line_item, d.quantity, d.amount, d.lines
FROM {rows}
""",
    # The last two are statements of their own, after the others: whether a reservation is still held is asked
    # of the row. A heartbeat is not bounded by the deadline, which a step of the clock may have left behind:
    # heartbeats end at the request's deadline by the sender's own clock, which does not step.
    "heartbeats": """
UPDATE billing_reservation AS r SET lease_expires_at = {lease}, used = COALESCE(d.used, r.used)
FROM {rows} WHERE r.id = d.reservation_id AND r.state = 'held' RETURNING id
""",
    "dispatched": """
UPDATE billing_reservation AS r SET dispatched_at = COALESCE(r.dispatched_at, {now})
FROM {rows} WHERE r.id = d.reservation_id AND r.state = 'held' RETURNING id
""",
}


def write_statement(syntax: SqlSyntax, name: str, *, rows: str, now: str = "", lease: str = "") -> str:
    """The statement of this name, with the database's names of its parameters."""
    table = syntax.rows(columns.WRITTEN[name], rows)
    return WRITES[name].format(rows=table, now=now, lease=lease)
