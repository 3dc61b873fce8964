from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway_site.management.operator_command import OperatorCommand
from inference.catalog import services
from inference.catalog.model_import import import_models
from inference.management.price_arguments import add_price_arguments, prices_in
from organization.audit.trail import Actor


class Command(OperatorCommand):
    help = "Import the models of a backend's own list. New ones are disabled and unpriced unless told."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backend", metavar="BACKEND")
        parser.add_argument("--prefix", default="", help="before each id here, such as `acme/`")
        parser.add_argument("--enable", action="store_true", help="switch new models on")
        add_price_arguments(parser)

    def perform(self, *, backend: str, prefix: str, enable: bool, **options: Any) -> dict[str, Any]:
        row = services.find_backend(backend)
        outcome = import_models(
            backend=row,
            prefix=prefix,
            changes={"is_enabled": enable},
            prices=prices_in(options),
            actor=Actor.command("sync_models"),
        )
        return {"backend": row.name, **outcome}

    def describe(self, outcome: dict[str, Any]) -> str:
        counts = ", ".join(f"{len(outcome[state])} {state}" for state in ("added", "present", "skipped"))
        return "\n".join([f"{outcome['backend']}: {counts}.", *(f"  {each}" for each in outcome["added"])])
