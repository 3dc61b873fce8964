from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from billing.ledger.audits import audit_and_record, check_to_json
from gateway_site.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = "Check every invariant of the ledger. Exits with 1 if one is broken."

    def handle(self, *args: Any, **options: Any) -> None:
        self.broken = 0
        super().handle(*args, **options)
        if self.broken:
            raise CommandError(f"{self.broken} invariants of the ledger are broken.", returncode=1)

    def perform(self, **options: Any) -> dict[str, Any]:
        checks = audit_and_record()
        self.broken = sum(1 for check in checks if check.count)
        return {
            "ok": not self.broken,
            "invariants": {check.invariant.name: check.count for check in checks},
            "broken": [check_to_json(check) for check in checks if check.count],
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        lines = [
            f"BROKEN {each['name']}: {each['count']} rows. {each['meaning']}"
            f" For example: {each['examples'][0]}"
            for each in outcome["broken"]
        ]
        return "\n".join([*lines, f"{len(outcome['invariants'])} invariants checked."])
