from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.models.prices import SOURCE_LENGTH
from gateway_site.management.operator_command import OperatorCommand
from inference.catalog import price_file
from inference.management.price_arguments import file_bytes
from organization.audit.trail import Actor


class Command(OperatorCommand):
    help = "Add the prices in a JSON file as new versions, all of them or none. See `export_prices`."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE.json")
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would change, and change nothing"
        )
        parser.add_argument(
            "--yes", action="store_true", help="these prices are right, also implausible ones"
        )

    def perform(self, *, file: str, dry_run: bool, yes: bool, **options: Any) -> dict[str, Any]:
        source = f"import {Path(file).name}"[:SOURCE_LENGTH]
        imported = price_file.import_prices(
            price_file.read_price_file(file_bytes(file, price_file.MAX_FILE_BYTES)),
            source=source,
            actor=Actor.command("import_prices"),
            is_confirmed=yes,
            is_dry_run=dry_run,
        )
        states = (price_file.NEW, price_file.CHANGED, price_file.SAME)
        return {
            "source": source,
            "is_dry_run": dry_run,
            **{state: sum(each.state == state for each in imported) for state in states},
            "models": [_as_json(each) for each in imported],
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        lines = []
        for each in outcome["models"]:
            if each["state"] == price_file.SAME:
                continue
            since = f" from {each['valid_from']}" if each["valid_from"] else ""
            lines.append(f"{each['model']}: {each['state']}{since}")
            lines += [f"  {change}" for change in each["changes"]]
            lines += [f"  implausible: {problem}" for problem in each["problems"]]
        counts = ", ".join(f"{outcome[state]} {state}" for state in ("new", "changed", "same"))
        lines.append(f"{counts}." + (" Nothing was stored: a dry run." if outcome["is_dry_run"] else ""))
        return "\n".join(lines)


def _as_json(each: price_file.ImportedPrice) -> dict[str, Any]:
    return {
        "model": each.model,
        "state": each.state,
        "valid_from": each.valid_from.isoformat() if each.valid_from else None,
        "version": str(each.version.pk) if each.version else None,
        "changes": each.changes,
        "problems": each.problems,
    }
