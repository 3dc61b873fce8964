from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from billing.prices.card_text import card_summary, read_card, write_card
from gateway_site.management.operator_command import OperatorCommand
from inference.catalog import services
from inference.catalog.model_import import import_models
from inference.management.price_arguments import add_price_arguments, price_options
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
        prices = price_options(options)
        card = prices.card_of_new_model()
        outcome = import_models(
            backend=row,
            prefix=prefix,
            changes={"is_enabled": enable},
            card=card,
            valid_from=prices.valid_from,
            is_confirmed=prices.is_confirmed,
            actor=Actor.command("sync_models"),
        )
        return {"backend": row.name, **outcome, "card": write_card(card) if card else None}

    def describe(self, outcome: dict[str, Any]) -> str:
        counts = ", ".join(f"{len(outcome[state])} {state}" for state in ("added", "present", "skipped"))
        lines = [f"{outcome['backend']}: {counts}.", *(f"  {each}" for each in outcome["added"])]
        if outcome["added"] and outcome["card"] is not None:
            lines.append(f"New models cost: {card_summary(read_card(outcome['card']))}.")
        return "\n".join(lines)
