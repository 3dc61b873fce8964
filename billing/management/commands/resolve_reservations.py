from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from billing.management.ages import age_argument
from billing.management.resolutions import add_resolutions
from billing.money import usd
from billing.reservation_services import (
    UnknownResolution,
    resolve_reservations,
    totals_of,
    unknown_reservations,
)
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor
from organization.lookups import find_organization


class Command(OperatorCommand):
    help = "Resolve every reservation that has been unknown for some time, by one rule."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=age_argument,
            required=True,
            metavar="AGE",
            help="unknown for this long: 90s, 30m, 2h, 1d",
        )
        add_resolutions(parser.add_mutually_exclusive_group(required=True).add_argument)
        parser.add_argument("--organization", help="only of this one: id or name")
        parser.add_argument("--model", help="only requests for this model")
        parser.add_argument("--dry-run", action="store_true", help="say how many, and change nothing")

    def perform(
        self,
        *,
        older_than: timedelta,
        resolution: UnknownResolution,
        organization: str | None,
        model: str | None,
        dry_run: bool,
        **options: Any,
    ) -> dict[str, Any]:
        owner = None if organization is None else find_organization(organization)
        if dry_run:
            matching = unknown_reservations(older_than=older_than, organization=owner, model=model)
            found = totals_of(matching)
            return {
                "dry_run": True,
                "resolution": resolution,
                "matching": found.count,
                "observed": found.observed,
                "held_usd": usd(found.held_nanousd),
            }
        totals = resolve_reservations(
            older_than=older_than,
            resolution=resolution,
            actor=Actor.command("resolve_reservations"),
            organization=owner,
            model=model,
        )
        return {
            "dry_run": False,
            "resolution": resolution,
            "resolved": totals.resolved,
            "charged": totals.charged,
            "released": totals.released,
            "written_off": totals.written_off,
            "already_resolved": totals.already_resolved,
            "left_over": totals.left_over,
            "charged_usd": usd(totals.charged_nanousd),
            "operator_loss_usd": usd(totals.operator_loss_nanousd),
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        if outcome["dry_run"]:
            return (
                f"{outcome['matching']} unknown reservations match, which hold ${outcome['held_usd']};"
                f" {outcome['observed']} of them have usage to charge. Nothing was changed."
            )
        return " ".join(_sentences(outcome))


def _sentences(outcome: dict[str, Any]) -> list[str]:
    sentences = [f"{outcome['resolved']} reservations are resolved."]
    if outcome["resolution"] == UnknownResolution.CHARGE_OBSERVED:
        sentences.append(
            f"{outcome['charged']} were charged ${outcome['charged_usd']} in all;"
            f" {outcome['released']} had nothing to charge and were released."
        )
    sentences.append(f"The operator's loss is ${outcome['operator_loss_usd']}.")
    if outcome["already_resolved"]:
        sentences.append(f"{outcome['already_resolved']} were resolved by somebody else meanwhile.")
    if outcome["left_over"]:
        sentences.append(f"{outcome['left_over']} more match: run the command again.")
    return sentences
