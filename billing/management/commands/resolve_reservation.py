from __future__ import annotations

import uuid
from typing import Any

from django.core.management.base import CommandParser

from billing import reservation_services
from billing.management.amounts import usd_argument
from billing.management.resolutions import add_resolutions
from billing.money import usd
from billing.reservation_services import UnknownResolution
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor


class Command(OperatorCommand):
    help = "Settle an unknown reservation at what it cost, or end it by a rule."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", type=uuid.UUID, help="the reservation, which is the request's id")
        ending = parser.add_mutually_exclusive_group(required=True)
        ending.add_argument("--amount", type=usd_argument, metavar="USD", help="what the request cost")
        add_resolutions(ending.add_argument)

    def perform(
        self, *, id: uuid.UUID, amount: int | None, resolution: UnknownResolution | None, **options: Any
    ) -> dict[str, Any]:
        actor = Actor.command("resolve_reservation")
        if resolution is not None:
            reservation, outcome = reservation_services.resolve_reservation(
                reservation_id=id, resolution=resolution, actor=actor
            )
        else:
            assert amount is not None  # noqa: S101 - one of the options is required
            reservation, outcome = reservation_services.settle_reservation(
                reservation_id=id, amount_nanousd=amount, actor=actor
            )
        return {
            "id": str(reservation.pk),
            "state": reservation.state,
            "charged_usd": usd(outcome.charged_nanousd or 0),
            "operator_loss_usd": usd(outcome.operator_loss_nanousd),
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        return (
            f"{outcome['id']} is {outcome['state']}: charged ${outcome['charged_usd']},"
            f" lost ${outcome['operator_loss_usd']}."
        )
