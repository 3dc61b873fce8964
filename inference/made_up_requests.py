"""Requests as they might have been, for `generate_activity`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from inference.models import Activity
from organization.models import ProjectKey

KINDS = 2_000
ENDPOINTS = ("/v1/chat/completions", "/v1/responses")
# How a request ends, and of how many in a thousand.
ENDINGS = (
    (200, "", 930),
    (400, "invalid_request", 8),
    (402, "insufficient_credit", 6),
    (403, "policy_violation", 6),
    (404, "model_not_found", 4),
    (429, "rate_limit_exceeded", 16),
    (499, "client_closed_request", 14),
    (500, "internal_error", 1),
    (502, "upstream_error", 7),
    (503, "no_backend_available", 5),
    (504, "deadline_exceeded", 3),
)
# Those that no backend was asked for.
REFUSED = (400, 402, 403, 404, 429)
PROMPT_PICOUSD, COMPLETION_PICOUSD = 150_000, 600_000


def make_kinds(keys: Sequence[ProjectKey], models: int, chance: random.Random) -> list[Activity]:
    """
    Requests of many sizes; each that is generated is one of them.

    A few keys and models have most of them, as it is everywhere.
    """
    endings = chance.choices(ENDINGS, [share for *_, share in ENDINGS], k=KINDS)
    busy = [1 / (rank + 1) for rank in range(len(keys))]
    liked = [1 / (rank + 1) for rank in range(models)]
    return [
        _kind(key, f"made-up-{model + 1}", status, code, chance)
        for (status, code, _), key, model in zip(
            endings,
            chance.choices(keys, busy, k=KINDS),
            chance.choices(range(models), liked, k=KINDS),
            strict=True,
        )
    ]


def _kind(key: ProjectKey, model: str, status: int, code: str, chance: random.Random) -> Activity:
    first = min(60_000, int(chance.lognormvariate(5.7, 0.9)))
    total = min(600_000, first + int(chance.lognormvariate(7.2, 1.0)))
    is_asked = status not in REFUSED
    row = Activity(
        organization_id=key.project.organization_id,
        project_id=key.project_id,
        api_key_id=key.pk,
        endpoint=chance.choice(ENDPOINTS),
        model=model,
        is_stream=chance.random() < 0.7,
        status=status,
        code=code,
        total_ms=total if is_asked else chance.randint(1, 30),
    )
    if is_asked:
        row.attempt_log = _attempts(model, status, code, total, chance)
        row.attempts, row.deployment = len(row.attempt_log), row.attempt_log[-1]["deployment"]
    if status in (200, 499):
        row.prompt_tokens, row.completion_tokens = chance.randint(20, 8_000), chance.randint(1, 1_500)
        row.cached_tokens = chance.choice([0, 0, row.prompt_tokens // 2])
        row.reasoning_tokens = chance.choice([0, 0, row.completion_tokens // 3])
        row.first_token_ms = first
        picousd = row.prompt_tokens * PROMPT_PICOUSD + row.completion_tokens * COMPLETION_PICOUSD
        row.cost_nanousd = -(-picousd // 1_000)
    return row


def _attempts(model: str, status: int, code: str, total: int, chance: random.Random) -> list[dict[str, Any]]:
    """One, or now and then a second after a first that failed."""
    last_code = "" if status == 200 else code
    if chance.random() >= 0.05:
        return [{"deployment": f"backend-1/{model}", "began_ms": 1, "ended_ms": total, "code": last_code}]
    failed = total // 4
    return [
        {"deployment": f"backend-1/{model}", "began_ms": 1, "ended_ms": failed, "code": "upstream_error"},
        {"deployment": f"backend-2/{model}", "began_ms": failed, "ended_ms": total, "code": last_code},
    ]
