from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from billing import services
from billing.management.amounts import usd_argument
from billing.models import Account
from billing.money import usd
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor
from organization.lookups import find_organization


class Command(OperatorCommand):
    help = "Grant credit to an organization. A negative amount takes back what is not spent or held."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organization", help="id or name")
        parser.add_argument("amount", type=usd_argument, metavar="USD", help="for example 25 or 0.50")
        parser.add_argument("--reason", default="")
        parser.add_argument("--reference", help="an invoice or payment; the same one again grants nothing")

    def perform(
        self, *, organization: str, amount: int, reason: str, reference: str | None, **options: Any
    ) -> dict[str, Any]:
        owner = find_organization(organization)
        grant, is_new = services.grant_credit(
            organization=owner,
            amount_nanousd=amount,
            reason=reason,
            reference=reference,
            actor=Actor.command("grant_credit"),
        )
        account = Account.objects.get(pk=owner.pk)
        return {
            "id": grant.pk,
            "organization_id": str(owner.pk),
            "usd": usd(grant.amount_nanousd),
            "available_usd": usd(account.available_nanousd),
            "created": is_new,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Granted" if outcome["created"] else "Was already granted:"
        return f"{verb} ${outcome['usd']}; ${outcome['available_usd']} is available."
