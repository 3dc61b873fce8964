from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from billing.models import PriceVersion
from billing.prices import versions
from billing.prices.card_text import card_rows, read_card, write_card
from gateway_site.management.operator_command import OperatorCommand
from inference.catalog import services
from inference.catalog.vocabularies import vocabulary_text
from inference.management.price_arguments import add_price_arguments, price_options, pricing_of
from inference.tokenizer import VOCABULARIES
from organization.audit.trail import Actor

COLUMNS = (
    "context_length",
    "max_output_length",
    "tokenizer",
    "is_tokenizer_exact",
    "display_name",
    "input_modalities",
)


class Command(OperatorCommand):
    help = "Add a model to the catalog and deploy it on a backend, or change what is there."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="as customers name it")
        parser.add_argument("--backend", required=True, metavar="NAME")
        parser.add_argument("--upstream-id", help="its name on the backend, if that is another one")
        add_price_arguments(parser)
        parser.add_argument("--context-length", type=int)
        parser.add_argument("--max-output-length", type=int)
        parser.add_argument(
            "--tokenizer",
            metavar="NAME",
            help=f"the vocabulary to count tokens with: {', '.join(VOCABULARIES)}. A new model without one "
            "gets that of its family, by its name; so does any with an empty one",
        )
        parser.add_argument(
            "--approximate-tokenizer",
            action="store_const",
            const=False,
            dest="is_tokenizer_exact",
            help="the vocabulary is only near the model's own: no prompt is refused as too long by it",
        )
        parser.add_argument("--display-name")
        parser.add_argument(
            "--input-modality", action="append", dest="input_modalities", choices=services.MODALITIES
        )
        parser.add_argument("--weight", type=int, help="its share of requests among its deployments")

    def perform(
        self, *, id: str, backend: str, upstream_id: str | None, weight: int | None, **options: Any
    ) -> dict[str, Any]:
        actor = Actor.command("add_model")
        row = services.find_backend(backend)
        given = {name: options[name] for name in COLUMNS if options[name] is not None}
        prices = price_options(options)
        with transaction.atomic():
            model, is_new = services.save_model(
                model_id=id,
                changes=given,
                card=prices.card_for(id),
                valid_from=prices.valid_from,
                is_confirmed=prices.is_confirmed,
                actor=actor,
                upstream_ids=[upstream_id or id],
            )
            deployment, _ = services.save_deployment(
                model=model, backend=row, upstream_id=upstream_id or id, weight=weight, actor=actor
            )
        return {
            "id": model.pk,
            "backend": row.name,
            "upstream_id": deployment.upstream_id,
            "weight": deployment.weight,
            **_price_fields(versions.in_force_for(model.pk, prices.valid_from)),
            "context_length": model.context_length,
            "max_output_length": model.max_output_length,
            "tokenizer": model.tokenizer,
            "is_tokenizer_exact": model.is_tokenizer_exact,
            "is_enabled": model.is_enabled,
            "is_priced": model.price_version is not None,
            "created": is_new,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Added" if outcome["created"] else "Changed"
        vocabulary = vocabulary_text(outcome["tokenizer"], outcome["is_tokenizer_exact"])
        lines = [
            f"{verb} model {outcome['id']} on {outcome['backend']}. Its tokens are counted by {vocabulary}."
        ]
        if outcome["card"] is not None:
            version = f"version {outcome['price_version']}, from {outcome['valid_from']}"
            lines.append(f"Prices ({version}):")
            lines += [f"  {item}: {words}" for item, words in card_rows(read_card(outcome["card"]))]
        if not outcome["is_priced"]:
            what = "no price" if outcome["card"] is None else "no price in force yet"
            lines.append(f"It has {what} and is not served until it has.")
        return "\n".join(lines)


def _price_fields(version: PriceVersion | None) -> dict[str, Any]:
    """What is printed of a price version: per token as clients read it, and the card per million tokens."""
    return {
        "pricing": pricing_of(version.card if version else None),
        "card": write_card(version.card) if version else None,
        "price_version": str(version.pk) if version else None,
        "valid_from": version.valid_from.isoformat() if version else None,
    }
