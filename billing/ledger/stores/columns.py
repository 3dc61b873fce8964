"""
Where each field of the ledger's rows is stored: the one list of columns that both stores make their SQL from.

Rows travel as JSON objects in both directions, by the names of their structs' fields: those that are read are
in `billing.ledger.rows`, those that are written in `billing.ledger.changes`. Types are PostgreSQL's.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """One value that is read: the field it goes to, the SQL that gives it, and its type."""

    field: str
    sql: str
    type: str = "bigint"


# --- what is read ------------------------------------------------------------------------------------

ACCOUNT = (
    Column("organization_id", "organization_id", "uuid"),
    Column("granted", "granted_nanousd"),
    Column("held", "held_nanousd"),
    Column("settled", "settled_nanousd"),
)
PERIOD = (
    Column("starts_at", "p.starts_at", "timestamptz"),
    Column("held", "p.held_nanousd"),
    Column("settled", "p.settled_nanousd"),
)
CAP = (
    Column("id", "c.id"),
    Column("organization_id", "c.organization_id", "uuid"),
    Column("project_id", "c.project_id", "uuid"),
    Column("key_id", "c.api_key_id", "uuid"),
    Column("period", "c.period", "text"),
    Column("limit", "c.limit_nanousd"),
)
METER = (
    Column("key_id", "m.api_key_id", "uuid"),
    Column("live_holds", "m.live_holds"),
    Column("window_starts_at", "m.window_starts_at", "timestamptz"),
    Column("window_requests", "m.window_requests"),
)
PROJECT = (
    Column("id", "id", "uuid"),
    Column("organization_id", "organization_id", "uuid"),
    Column("is_archived", "archived_at IS NOT NULL", "bool"),
)
KEY = (
    Column("id", "id", "uuid"),
    Column("project_id", "project_id", "uuid"),
    Column("is_stopped", "revoked_at IS NOT NULL OR suspended_at IS NOT NULL", "bool"),
    Column("expires_at", "expires_at", "timestamptz"),
    Column("digest", "digest", "text"),
)
RESERVATION = (
    Column("id", "r.id", "uuid"),
    Column("organization_id", "r.organization_id", "uuid"),
    Column("project_id", "r.project_id", "uuid"),
    Column("key_id", "r.api_key_id", "uuid"),
    Column("model", "r.model", "text"),
    Column("choices", "r.choices"),
    Column("state", "r.state", "text"),
    Column("version_id", "r.price_version_id", "uuid"),
    Column("reserved", "r.reserved_nanousd"),
    Column("charged", "r.charged_nanousd"),
    Column("loss", "r.operator_loss_nanousd"),
    Column("ended_by", "r.ended_by", "text"),
    Column("admitted_at", "r.admitted_at", "timestamptz"),
    Column("dispatched_at", "r.dispatched_at", "timestamptz"),
    Column("lease_expires_at", "r.lease_expires_at", "timestamptz"),
    Column("unknown_at", "r.unknown_at", "timestamptz"),
)

# Of a reservation as well, for what an ordinary settlement does not decide.
RESERVATION_QUANTITIES = (
    Column("bounds", "r.bounds", "json"),
    Column("used", "r.used", "json"),
)
CARD = (
    Column("id", "v.id", "uuid"),
    Column("card", "v.card_json", "json"),
)

# --- what is written: each field with its type -----------------------------------------------------

WRITTEN = {
    "accounts": {"organization_id": "uuid", "held": "bigint", "settled": "bigint"},
    "new_periods": {
        "cap_id": "bigint",
        "starts_at": "timestamptz",
        "ends_at": "timestamptz",
        "ceiling": "bigint",
        "held": "bigint",
        "settled": "bigint",
    },
    "periods": {"cap_id": "bigint", "starts_at": "timestamptz", "held": "bigint", "settled": "bigint"},
    "meters": {
        "key_id": "uuid",
        "live_holds": "int",
        "window_starts_at": "timestamptz",
        "window_requests": "int",
    },
    "resolved": {
        "reservation_id": "uuid",
        "state": "text",
        "basis": "text",
        "ended_by": "text",
        "reserved": "bigint",
        "charged": "bigint",
        "loss": "bigint",
        "used": "jsonb",
    },
    "reservations": {
        "id": "uuid",
        "organization_id": "uuid",
        "project_id": "uuid",
        "key_id": "uuid",
        "model": "text",
        "choices": "int",
        "version_id": "uuid",
        "bounds": "jsonb",
        "reserved": "bigint",
        "is_dispatched": "bool",
        "deadline_at": "timestamptz",
    },
    "lines": {
        "reservation_id": "uuid",
        "organization_id": "uuid",
        "project_id": "uuid",
        "key_id": "uuid",
        "admitted_at": "timestamptz",
        "day": "date",
        "line_item": "text",
        "quantity": "bigint",
        "amount": "bigint",
    },
    "unrolled": {
        "organization_id": "uuid",
        "project_id": "uuid",
        "key_id": "uuid",
        "day": "date",
        "line_item": "text",
        "quantity": "bigint",
        "amount": "bigint",
        "lines": "int",
    },
    "heartbeats": {"reservation_id": "uuid", "used": "jsonb"},
    "dispatched": {"reservation_id": "uuid"},
}
