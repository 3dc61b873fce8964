from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from billing import services
from billing.management.amounts import usd_argument
from billing.models import SpendingCap
from billing.money import usd
from gateway_site.api.errors import NotFound
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor
from organization.lookups import find_key, find_organization, find_project
from organization.models import ProjectKey


class Command(OperatorCommand):
    help = "Cap what an organization, project or project key may spend in a period (UTC)."

    def add_own_arguments(self, parser: CommandParser) -> None:
        scope = parser.add_mutually_exclusive_group(required=True)
        scope.add_argument("--organization", help="id or name")
        scope.add_argument("--project", help="id or name")
        scope.add_argument("--key", help="id")
        parser.add_argument("limit", type=usd_argument, metavar="USD")
        parser.add_argument("--period", choices=SpendingCap.Period.values, required=True)

    def perform(self, *, limit: int, period: str, **options: Any) -> dict[str, Any]:
        cap = services.set_spending_limit(
            scope=self._scope(options),
            period=period,
            limit_nanousd=limit,
            actor=Actor.command("set_spending_limit"),
        )
        current = cap.periods.latest("starts_at") if cap.periods.exists() else None
        return {
            "id": cap.pk,
            "scope": cap.scope,
            "period": cap.period,
            "limit_usd": usd(cap.limit_nanousd),
            "used_usd": usd(current.held_nanousd + current.settled_nanousd) if current else "0",
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        return (
            f"The {outcome['scope']} may spend ${outcome['limit_usd']} ({outcome['period']});"
            f" ${outcome['used_usd']} of the latest period is used."
        )

    def _scope(self, options: dict[str, Any]) -> services.SpendingScope:
        if options["organization"]:
            return find_organization(options["organization"])
        if options["project"]:
            return find_project(options["project"])
        key = find_key(options["key"])
        if not isinstance(key, ProjectKey):
            raise NotFound("That is an admin key, which spends nothing.")
        return key
