"""What the commands that move a policy share."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from policies.models import Policy


class PolicyCommand(OperatorCommand):
    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")

    def outcome_of(self, policy: Policy) -> dict[str, Any]:
        version = policy.current_version
        return {
            "id": str(policy.pk),
            "name": policy.name,
            "state": str(policy.state),
            "version": version.version if version else None,
            "revision": policy.revision,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        return (
            f"Policy {outcome['name']} ({outcome['id']}) is {outcome['state']}, version {outcome['version']}."
        )
