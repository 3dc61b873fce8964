"""
The trace of one request, for the console and for support: one row by its request id.

It is filled in while the request runs; `inference.activity.writer` writes it later. It holds figures and
names, never a prompt, a completion or a key.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from billing.ledger.operations import ReservationOutcome
from billing.models import ReservationState
from billing.money import usd
from gateway_site.api import request_id
from gateway_site.api.errors import ApiError
from inference.events import Usage
from organization.models import ProjectKey

# What nginx calls it: the client left before it had its answer.
CLIENT_CLOSED_REQUEST = 499


@dataclass(slots=True)
class Attempt:
    """One call of a deployment, and how it ended."""

    deployment: str
    began: float
    ended: float | None = None
    code: str = ""

    def end(self, code: str = "") -> None:
        self.ended, self.code = time.monotonic(), code


class ActivityRow(Struct, frozen=True, kw_only=True):
    """The columns of an Activity, as plain values: to make one is twenty times as quick."""

    id: uuid.UUID
    created_at: datetime
    ended_at: datetime
    organization_id: uuid.UUID
    project_id: uuid.UUID
    api_key_id: uuid.UUID
    endpoint: str
    model: str
    deployment: str
    is_stream: bool
    status: int
    code: str
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cost_nanousd: int | None
    first_token_ms: int | None
    total_ms: int
    attempts: int
    attempt_log: list[dict[str, Any]]


@dataclass(slots=True)
class RequestTrace:
    """What happened to one request so far, and when."""

    key: ProjectKey
    endpoint: str
    id: uuid.UUID = field(default_factory=lambda: uuid.UUID(request_id.current()))
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    model: str = ""
    is_stream: bool = False
    # Until something better is known.
    status: int = ApiError.status
    code: str = ApiError.code
    deployment: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    first_token: float | None = None
    usage: Usage | None = None
    cost_nanousd: int | None = None
    # Whether the client asked for what it cost.
    includes_cost: bool = False
    # How long each step took, as far as it came: for `server_timing`.
    steps: dict[str, float] = field(default_factory=dict)

    def record_step(self, name: str, began: float) -> float:
        """Record how long a step took that ends now, and return now."""
        now = time.monotonic()
        self.steps[name] = now - began
        return now

    def server_timing(self) -> bytes:
        """The value of a Server-Timing header: steps in milliseconds, and the wait for the first token."""
        steps = dict(self.steps)
        if self.first_token is not None:
            steps["upstream"] = self.first_token - self.attempts[-1].began
        return ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in steps.items()).encode()

    def cost_for_client(self) -> str | None:
        """The charge in USD, where the client asked for it and it is final and stored; None otherwise."""
        return usd(self.cost_nanousd) if self.includes_cost and self.cost_nanousd is not None else None

    def begin_attempt(self, deployment: str) -> Attempt:
        attempt = Attempt(deployment, time.monotonic())
        self.attempts.append(attempt)
        self.deployment = deployment
        return attempt

    def succeed(self) -> None:
        self.status, self.code = 200, ""

    def fail(self, error: ApiError) -> None:
        self.status, self.code = error.status, error.code

    def close_unread(self) -> None:
        """End with nginx's 499: the client disconnected, or read nothing."""
        self.status, self.code = CLIENT_CLOSED_REQUEST, "client_closed_request"

    def settle(self, outcome: ReservationOutcome, usage: Usage | None) -> None:
        if outcome.is_durable and outcome.state in (ReservationState.SETTLED, ReservationState.RELEASED):
            self.cost_nanousd = outcome.charged_nanousd or 0
        if outcome.state == ReservationState.SETTLED:
            self.usage = usage

    def row(self) -> ActivityRow:
        usage = self.usage
        return ActivityRow(
            id=self.id,
            created_at=self.created_at,
            ended_at=self.created_at + timedelta(seconds=(self.ended or time.monotonic()) - self.started),
            organization_id=self.key.project.organization_id,
            project_id=self.key.project_id,
            api_key_id=self.key.pk,
            endpoint=self.endpoint,
            model=self.model,
            deployment=self.deployment,
            is_stream=self.is_stream,
            status=self.status,
            code=self.code,
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            completion_tokens=None if usage is None else usage.completion_tokens,
            reasoning_tokens=None if usage is None else usage.reasoning_tokens,
            cost_nanousd=self.cost_nanousd,
            first_token_ms=None if self.first_token is None else self._milliseconds(self.first_token),
            total_ms=self._milliseconds(self.ended or time.monotonic()),
            attempts=len(self.attempts),
            attempt_log=[self._logged(attempt) for attempt in self.attempts],
        )

    def _logged(self, attempt: Attempt) -> dict[str, Any]:
        # One that was cut short, by the client or by the deadline, ended with its request.
        ended = attempt.ended or self.ended or time.monotonic()
        return {
            "deployment": attempt.deployment,
            "began_ms": self._milliseconds(attempt.began),
            "ended_ms": self._milliseconds(ended),
            "code": attempt.code if attempt.ended else self.code,
        }

    def _milliseconds(self, moment: float) -> int:
        return max(0, round((moment - self.started) * 1000))
