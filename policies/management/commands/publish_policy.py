from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from organization.audit.trail import Actor
from policies import services
from policies.lookups import find_policy
from policies.management.policy_command import PolicyCommand
from policies.models import Mode


class Command(PolicyCommand):
    help = "Put a policy's draft in force. Without unpublished changes it makes no new version."

    def add_own_arguments(self, parser: CommandParser) -> None:
        super().add_own_arguments(parser)
        parser.add_argument("--mode", choices=Mode.values, help="instead of the draft's own")

    def perform(self, *, id: str, mode: str | None, **options: Any) -> dict[str, Any]:
        policy = services.publish_policy(
            policy=find_policy(id), mode=mode, actor=Actor.command("publish_policy")
        )
        return self.outcome_of(policy)
