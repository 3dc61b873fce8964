from __future__ import annotations

import json
from typing import Any

from gateway_site.management.operator_command import OperatorCommand
from inference.catalog.price_file import export_prices


class Command(OperatorCommand):
    help = "Print the prices that are in force, as `import_prices` reads them."

    def perform(self, **options: Any) -> dict[str, Any]:
        return export_prices()

    def describe(self, outcome: dict[str, Any]) -> str:
        return json.dumps(outcome, indent=2)
