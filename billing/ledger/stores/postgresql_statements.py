"""
The ledger's SQL for PostgreSQL, written by hand, because every request waits for it.

A batch is few statements, because each has a price of its own, on both sides. Rows travel as JSON in both
directions, so a statement's text does not depend on how many there are, and is prepared once.
"""

from __future__ import annotations

from functools import cache


def _rows_of(statement: str, columns: int) -> str:
    """All its rows as one JSON value: a list of lists, or null."""
    names = ", ".join(f"c{place}" for place in range(columns))
    return f"SELECT json_agg(json_build_array({names})) FROM ({statement}) AS d({names})"  # noqa: S608


# The lock of everything else, always first and always in this order. A statement of its own: what the next
# one reads must be read after it. NO KEY, so that a foreign key that points at the row does not wait.
LOCK_ACCOUNTS = _rows_of(
    """
SELECT replace(organization_id::text, '-', ''), granted_nanousd, held_nanousd, settled_nanousd
FROM billing_account WHERE organization_id = ANY($1::uuid[]) ORDER BY organization_id FOR NO KEY UPDATE
""",
    columns=4,
)
LOCK_ACCOUNTS_NOW = LOCK_ACCOUNTS.replace("FOR NO KEY UPDATE", "FOR NO KEY UPDATE NOWAIT")
CREATE_ACCOUNTS = """
INSERT INTO billing_account (organization_id, granted_nanousd, held_nanousd, settled_nanousd)
SELECT id, 0, 0, 0 FROM organization_organization WHERE id = ANY($1::uuid[]) ORDER BY id
ON CONFLICT DO NOTHING
"""

# --- what a batch reads, in the order of `store_postgresql.Found` --------------------------------------

READ_CAPS = """
SELECT c.id, replace(c.organization_id::text, '-', ''), replace(c.project_id::text, '-', ''),
       replace(c.api_key_id::text, '-', ''), c.period, c.limit_nanousd,
       p.starts_at, p.held_nanousd, p.settled_nanousd
FROM billing_spendingcap c
LEFT JOIN billing_capperiod p ON p.cap_id = c.id AND (p.ends_at IS NULL OR p.ends_at > now())
WHERE c.organization_id = ANY($1::uuid[]) ORDER BY c.id
"""
READ_METERS = """
SELECT replace(api_key_id::text, '-', ''), live_holds, window_starts_at, window_requests
FROM billing_keymeter WHERE api_key_id = ANY($2::uuid[])
"""
# SHARE, so that a revocation or an archive waits for the batch, and nothing is admitted after it returned.
READ_PROJECTS = """
SELECT replace(id::text, '-', ''), replace(organization_id::text, '-', ''), archived_at IS NOT NULL
FROM organization_project WHERE id = ANY($3::uuid[]) ORDER BY id FOR SHARE
"""
READ_KEYS = """
SELECT replace(id::text, '-', ''), replace(project_id::text, '-', ''),
       revoked_at IS NOT NULL OR suspended_at IS NOT NULL, expires_at, digest
FROM organization_projectkey WHERE id = ANY($2::uuid[]) ORDER BY id FOR SHARE
"""
# With the meters of these reservations' keys: the caller of a settlement does not know the key.
READ_RESERVATIONS = """
SELECT replace(r.id::text, '-', ''), replace(r.organization_id::text, '-', ''),
       replace(r.project_id::text, '-', ''), replace(r.api_key_id::text, '-', ''), r.model, r.state,
       r.prompt_price_picousd, r.cached_price_picousd, r.completion_price_picousd, r.image_price_picousd,
       r.request_price_picousd, r.reserved_nanousd, r.charged_nanousd, r.operator_loss_nanousd,
       r.observed_prompt, r.observed_cached, r.observed_completion, r.observed_images,
       r.admitted_at, r.dispatched_at IS NOT NULL, r.lease_expires_at, r.unknown_at,
       m.live_holds, m.window_starts_at, m.window_requests
FROM billing_reservation r LEFT JOIN billing_keymeter m ON m.api_key_id = r.api_key_id
WHERE r.id = ANY($4::uuid[])
"""


# The clock after the account's lock, so that waiting for it does not make the time stale.
READ = f"""
SELECT json_build_array(
    clock_timestamp(),
    ({_rows_of(READ_CAPS, 9)}),
    ({_rows_of(READ_METERS, 4)}),
    ({_rows_of(READ_PROJECTS, 3)}),
    ({_rows_of(READ_KEYS, 5)}),
    ({_rows_of(READ_RESERVATIONS, 25)})
)::text
"""

# --- what it writes: $1 is the time, $2 a lease in seconds, then come the rows of each part -----------------

PARTS = {
    "accounts": """
UPDATE billing_account a
SET held_nanousd = a.held_nanousd + d.held, settled_nanousd = a.settled_nanousd + d.settled
FROM json_to_recordset({rows}) AS d(id uuid, held bigint, settled bigint)
WHERE a.organization_id = d.id
""",
    # With what it counts at once: the parts of a statement do not see each other's rows.
    "new_periods": """
INSERT INTO billing_capperiod AS p
    (cap_id, starts_at, ends_at, ceiling_nanousd, held_nanousd, settled_nanousd)
SELECT * FROM json_to_recordset({rows}) AS d(
    cap bigint, starts_at timestamptz, ends_at timestamptz, ceiling bigint, held bigint, settled bigint)
ON CONFLICT (cap_id, starts_at) DO UPDATE
SET held_nanousd = p.held_nanousd + EXCLUDED.held_nanousd,
    settled_nanousd = p.settled_nanousd + EXCLUDED.settled_nanousd
""",
    "periods": """
UPDATE billing_capperiod p
SET held_nanousd = p.held_nanousd + d.held, settled_nanousd = p.settled_nanousd + d.settled
FROM json_to_recordset({rows}) AS d(cap bigint, starts_at timestamptz, held bigint, settled bigint)
WHERE p.cap_id = d.cap AND p.starts_at = d.starts_at
""",
    "meters": """
INSERT INTO billing_keymeter (api_key_id, live_holds, window_starts_at, window_requests)
SELECT * FROM json_to_recordset({rows}) AS d(id uuid, live int, starts_at timestamptz, requests int)
ON CONFLICT (api_key_id) DO UPDATE SET live_holds = EXCLUDED.live_holds,
    window_starts_at = EXCLUDED.window_starts_at, window_requests = EXCLUDED.window_requests
""",
    # No condition on the state: it was read under the account's lock, and the trigger refuses what has ended.
    "resolved": """
UPDATE billing_reservation r
SET state = d.state, basis = d.basis, charged_nanousd = d.charged, operator_loss_nanousd = d.loss,
    unknown_at = CASE WHEN d.state = 'unknown' THEN $1::timestamptz ELSE r.unknown_at END,
    resolved_at = CASE WHEN d.state = 'unknown' THEN NULL ELSE $1::timestamptz END
FROM json_to_recordset({rows}) AS d(id uuid, state text, basis text, charged bigint, loss bigint)
WHERE r.id = d.id
""",
    "reservations": """
INSERT INTO billing_reservation (
    id, organization_id, project_id, api_key_id, model, choices, prompt_price_picousd, cached_price_picousd,
    completion_price_picousd, image_price_picousd, request_price_picousd, reserved_nanousd, dispatched_at,
    deadline_at, state, basis, operator_loss_nanousd, admitted_at, lease_expires_at)
SELECT d.id, d.organization_id, d.project_id, d.key_id, d.model, d.choices, p.prompt, p.cached, p.completion,
       p.image, p.request, d.reserved, CASE WHEN d.is_dispatched THEN c.now END,
       c.now + make_interval(secs => d.deadline_seconds), 'held', '', 0, c.now,
       c.now + make_interval(secs => $2::float)
FROM json_to_recordset({rows}) AS d(
         id uuid, organization_id uuid, project_id uuid, key_id uuid, model text, choices int, price json,
         reserved bigint, is_dispatched bool, deadline_seconds int),
     json_to_record(d.price) AS p(
         prompt bigint, cached bigint, completion bigint, image bigint, request bigint),
     (SELECT $1::timestamptz AS now) AS c
""",
    "lines": """
INSERT INTO billing_costline
    (reservation_id, organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd)
SELECT * FROM json_to_recordset({rows}) AS d(
    reservation_id uuid, organization_id uuid, project_id uuid, key_id uuid, day date, line_item text,
    quantity bigint, amount bigint)
""",
    "unrolled": """
INSERT INTO billing_unrolledcost
    (organization_id, project_id, api_key_id, day, line_item, quantity, amount_nanousd, lines)
SELECT * FROM json_to_recordset({rows}) AS d(
    organization uuid, project uuid, key uuid, day date, item text, quantity bigint, amount bigint, lines int)
""",
}


@cache
def write_statement(names: tuple[str, ...]) -> str:
    """One statement that does all these parts. There are few combinations, and each is prepared once."""
    parts = [f"{name} AS ({PARTS[name].format(rows=f'${place}')})" for place, name in enumerate(names, 3)]
    # What no part has a use for must be used all the same.
    return f"WITH {', '.join(parts)} SELECT $1::timestamptz, $2::float"


# Statements of their own, and after the others: whether a reservation is still held is asked of the row.

# Not bounded by the deadline, which a step of the clock may have left behind: heartbeats end at the request's
# deadline by the sender's own clock, which does not step.
WRITE_HEARTBEATS = """
WITH touched AS (
    UPDATE billing_reservation r
    SET lease_expires_at = $1::timestamptz + make_interval(secs => $2::float),
        observed_prompt = COALESCE(d.prompt, r.observed_prompt),
        observed_cached = COALESCE(d.cached, r.observed_cached),
        observed_completion = COALESCE(d.completion, r.observed_completion),
        observed_images = COALESCE(d.images, r.observed_images)
    FROM json_to_recordset($3) AS d(id uuid, prompt bigint, cached bigint, completion bigint, images bigint)
    WHERE r.id = d.id AND r.state = 'held' RETURNING replace(r.id::text, '-', '') AS id)
SELECT json_agg(id) FROM touched
"""
WRITE_DISPATCHED = """
WITH touched AS (
    UPDATE billing_reservation SET dispatched_at = COALESCE(dispatched_at, $1::timestamptz)
    WHERE id = ANY($2::uuid[]) AND state = 'held' RETURNING replace(id::text, '-', '') AS id)
SELECT json_agg(id) FROM touched
"""
