from __future__ import annotations

from typing import Any

from billing.ledger.sweeper import sweep_after_watching
from billing.money import usd
from gateway_site.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Resolve reservations whose lease has run out and is not renewed while this watches, for one lease;"
        " release what stayed unknown too long, at the operator's loss."
    )

    def perform(self, **options: Any) -> dict[str, Any]:
        swept = sweep_after_watching()
        return {
            "released": swept.released,
            "settled": swept.settled,
            "unknown": swept.unknown,
            "unknown_released": swept.unknown_released,
            "operator_loss_usd": usd(swept.operator_loss_nanousd),
        }
