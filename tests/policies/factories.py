"""Policies at any stage of their lives, and verdicts."""

from __future__ import annotations

import uuid
from typing import Any

from organization.models import Organization, Project
from policies import services
from policies.models import Policy, Verdict
from policies.verdicts.writer import writer
from tests.factories import SOMEONE

PHRASE = "internal only"
RULE = f'Does the text contain "{PHRASE}"?'


def make_policy(organization: Organization, **fields: Any) -> Policy:
    return services.create_policy(
        organization=organization, actor=SOMEONE, **{"name": "Internal", "rule": RULE, **fields}
    )


def make_published(organization: Organization, mode: str = "enforcing", **fields: Any) -> Policy:
    return services.publish_policy(policy=make_policy(organization, **fields), mode=mode, actor=SOMEONE)


def verdict(policy: Policy, project: Project, score: float | None, **fields: Any) -> Verdict:
    return Verdict(
        version=policy.current_version,
        project=project,
        request_id=uuid.uuid4(),
        direction="request",
        mode="monitoring",
        outcome="inconclusive" if score is None else "match" if score >= 0.5 else "no_match",
        score=score,
        threshold_basis_points=5000,
        judge="quoted",
        latency_ms=1,
        **fields,
    )


def noted() -> list[Verdict]:
    """The verdicts that wait to be written."""
    return [note.row() for note in writer.pending]
