from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from billing.reports import rollup
from gateway_site.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = "Add the latest costs to the daily sums. The report counts them either way."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--repair",
            action="store_true",
            help="first correct sums that differ from the cost lines; reads every line",
        )

    def perform(self, *, repair: bool, **options: Any) -> dict[str, Any]:
        corrected = rollup.repair() if repair else 0
        return {"rows": rollup.roll_up(), "corrected": corrected}

    def describe(self, outcome: dict[str, Any]) -> str:
        line = f"Rolled up {outcome['rows']} rows."
        return f"{line} Corrected {outcome['corrected']} sums." if outcome["corrected"] else line
