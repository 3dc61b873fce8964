"""Records of requests as they might have been: how they ended, how long they took and what they cost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from inference.models import Activity
from organization.models import ProjectKey

TEMPLATES = 2_000
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
# Statuses of requests that no backend was asked for.
REFUSED = (400, 402, 403, 404, 429)
PROMPT_PICOUSD, COMPLETION_PICOUSD = 150_000, 600_000


def make_templates(keys: Sequence[ProjectKey], models: int, rng: random.Random) -> list[Activity]:
    """
    Requests of many sizes; each that is generated is one of them.

    A few keys and models have most of them, as it is everywhere.
    """
    endings = rng.choices(ENDINGS, [share for *_, share in ENDINGS], k=TEMPLATES)
    busy = [1 / (rank + 1) for rank in range(len(keys))]
    liked = [1 / (rank + 1) for rank in range(models)]
    return [
        _template(key, f"made-up-{model + 1}", status, code, rng)
        for (status, code, _), key, model in zip(
            endings,
            rng.choices(keys, busy, k=TEMPLATES),
            rng.choices(range(models), liked, k=TEMPLATES),
            strict=True,
        )
    ]


def _template(key: ProjectKey, model: str, status: int, code: str, rng: random.Random) -> Activity:
    first = min(60_000, int(rng.lognormvariate(5.7, 0.9)))
    total = min(600_000, first + int(rng.lognormvariate(7.2, 1.0)))
    reached_backend = status not in REFUSED
    row = Activity(
        organization_id=key.project.organization_id,
        project_id=key.project_id,
        api_key_id=key.pk,
        endpoint=rng.choice(ENDPOINTS),
        model=model,
        is_stream=rng.random() < 0.7,
        status=status,
        code=code,
        total_ms=total if reached_backend else rng.randint(1, 30),
    )
    if reached_backend:
        row.attempt_log = _attempts(model, status, code, total, rng)
        row.attempts, row.deployment = len(row.attempt_log), row.attempt_log[-1]["deployment"]
    if status in (200, 499):
        row.prompt_tokens, row.completion_tokens = rng.randint(20, 8_000), rng.randint(1, 1_500)
        row.cached_tokens = rng.choice([0, 0, row.prompt_tokens // 2])
        row.reasoning_tokens = rng.choice([0, 0, row.completion_tokens // 3])
        row.first_token_ms = first
        picousd = row.prompt_tokens * PROMPT_PICOUSD + row.completion_tokens * COMPLETION_PICOUSD
        row.cost_nanousd = -(-picousd // 1_000)
    return row


def _attempts(model: str, status: int, code: str, total: int, rng: random.Random) -> list[dict[str, Any]]:
    """One attempt, or now and then a second after a first that failed."""
    last_code = "" if status == 200 else code
    if rng.random() >= 0.05:
        return [{"deployment": f"backend-1/{model}", "began_ms": 1, "ended_ms": total, "code": last_code}]
    failed = total // 4
    return [
        {"deployment": f"backend-1/{model}", "began_ms": 1, "ended_ms": failed, "code": "upstream_error"},
        {"deployment": f"backend-2/{model}", "began_ms": failed, "ended_ms": total, "code": last_code},
    ]
