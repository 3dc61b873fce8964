from __future__ import annotations

from dataclasses import asdict
from typing import Any

from billing.sweeper import sweep
from gateway_site.api.commands import OperatorCommand


class Command(OperatorCommand):
    help = "Resolve reservations whose lease has run out, and write off what stayed unknown too long."

    def perform(self, **options: Any) -> dict[str, Any]:
        return asdict(sweep())
