from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from gateway_site.api.commands import OperatorCommand
from gateway_site.api.errors import InvalidRequest
from inference import services
from inference.command_prices import add_price_arguments, prices_in
from inference.models import Backend, CatalogModel
from inference.upstream_models import UpstreamModel, UpstreamTrouble, fetch_models
from organization.audit import Actor


class Command(OperatorCommand):
    help = "Import the models of a backend's own list. New ones are disabled and unpriced unless told."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backend", metavar="BACKEND")
        parser.add_argument("--prefix", default="", help="before each id here, such as `acme/`")
        parser.add_argument("--enable", action="store_true", help="switch new models on")
        add_price_arguments(parser)

    def perform(self, *, backend: str, prefix: str, enable: bool, **options: Any) -> dict[str, Any]:
        place = services.find_backend(backend)
        if place.kind == Backend.Kind.SIMULATOR:
            raise CommandError("A simulator has no list of models.")
        prices = prices_in(options)
        try:
            found = async_to_sync(fetch_models)(place)
        except UpstreamTrouble as problem:
            raise CommandError(f"{place.name}: {problem}") from None
        outcome: dict[str, list[str]] = {"added": [], "present": [], "skipped": []}
        for model in found:
            state = self._import(place, model, prefix, {**prices, "is_enabled": enable})
            outcome[state].append(f"{prefix}{model.id}")
        return {"backend": place.name, **outcome}

    def describe(self, outcome: dict[str, Any]) -> str:
        counts = ", ".join(f"{len(outcome[state])} {state}" for state in ("added", "present", "skipped"))
        return "\n".join([f"{outcome['backend']}: {counts}.", *(f"  {each}" for each in outcome["added"])])

    @staticmethod
    def _import(place: Backend, found: UpstreamModel, prefix: str, changes: dict[str, Any]) -> str:
        model_id, actor = f"{prefix}{found.id}", Actor.command("sync_models")
        # One that is there may be another backend's, or have been set up by hand: it is left alone.
        if model_id.isprintable() and CatalogModel.objects.filter(pk=model_id).exists():
            return "present"
        if found.context_length is not None:
            changes["context_length"] = found.context_length
        try:
            with transaction.atomic():
                model, _ = services.save_model(model_id=model_id, changes=changes, actor=actor)
                services.save_deployment(model=model, backend=place, upstream_id=found.id, actor=actor)
        except InvalidRequest:
            return "skipped"  # an id that could not be asked for here
        return "added"
