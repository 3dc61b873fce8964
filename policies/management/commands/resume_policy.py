from __future__ import annotations

from typing import Any

from organization.audit.trail import Actor
from policies import services
from policies.lookups import find_policy
from policies.management.policy_command import PolicyCommand


class Command(PolicyCommand):
    help = "Let a paused policy apply again, as it was published."

    def perform(self, *, id: str, **options: Any) -> dict[str, Any]:
        return self.outcome_of(
            services.resume_policy(policy=find_policy(id), actor=Actor.command("resume_policy"))
        )
