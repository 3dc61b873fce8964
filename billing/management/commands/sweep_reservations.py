from __future__ import annotations

from dataclasses import asdict
from typing import Any

from billing.ledger.sweeper import sweep_after_watching
from gateway_site.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Resolve reservations whose lease has run out and is not renewed while this watches, for one lease;"
        " write off what stayed unknown too long."
    )

    def perform(self, **options: Any) -> dict[str, Any]:
        return asdict(sweep_after_watching())
