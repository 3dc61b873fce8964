from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.corrections.requests import CorrectionScope, find_version
from billing.corrections.rerate import rerate
from billing.corrections.totals import OrganizationTotals, RerateResult
from billing.money import usd
from gateway_site.management.operator_command import OperatorCommand
from organization.audit.trail import Actor
from organization.lookups import find_organization

# More lines than anyone reads; `--json` has all.
MOST_LISTED = 50


def time_argument(text: str) -> datetime:
    """A moment as an argument: a day or a time by ISO 8601, in UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2026-06-01 or 2026-06-01T12:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class Command(OperatorCommand):
    help = (
        "Charge a model's requests of a period again, by the price version that is in force for them now"
        " or by one that is named. Adds entries and changes none; run twice, it changes nothing more."
    )

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        # Django's own --version, which prints its release, gives way to ours.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **options)

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="the model's id in the catalog")
        for option, name, meaning in (
            ("--from", "starts_at", "requests admitted at this time or later"),
            ("--to", "ends_at", "and before this one"),
        ):
            parser.add_argument(
                option, dest=name, type=time_argument, required=True, metavar="TIME", help=meaning
            )
        parser.add_argument(
            "--version",
            dest="version_id",
            metavar="ID",
            help="the price version to charge by; otherwise that in force when each request was admitted",
        )
        parser.add_argument("--organization", metavar="ID", help="the requests of one alone, by id or name")
        parser.add_argument("--reason", default="", help="shown on receipts and in the audit trail")
        parser.add_argument("--dry-run", action="store_true", help="only say what it would come to")

    def perform(
        self,
        *,
        model: str,
        starts_at: datetime,
        ends_at: datetime,
        version_id: str | None,
        organization: str | None,
        reason: str,
        dry_run: bool,
        **options: Any,
    ) -> dict[str, Any]:
        scope = CorrectionScope(
            model=model,
            starts_at=starts_at,
            ends_at=ends_at,
            version=find_version(version_id) if version_id else None,
            organization=find_organization(organization) if organization else None,
        )
        result = rerate(scope, actor=Actor.command("rerate"), reason=reason, is_dry_run=dry_run)
        return _outcome(result, dry_run)

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Would change" if outcome["dry_run"] else "Changed"
        organizations = outcome["organizations"]
        text = [f"{verb} {_sentence(outcome)}."]
        text += [f"  {each['id']}: {_sentence(each)}" for each in organizations[:MOST_LISTED]]
        if len(organizations) > MOST_LISTED:
            text.append(f"  and {len(organizations) - MOST_LISTED} organizations more: see --json")
        if outcome["requests"] and not outcome["changed"]:
            text.append(
                "Each is charged by the right version already. One that begins earlier than the version in"
                " force replaces it only where it is named with --version."
            )
        if outcome["uncollected_usd"] != "0":
            text.append(f"${outcome['uncollected_usd']} could not be charged for want of credit.")
        if outcome["skipped"]:
            text.append(f"{outcome['skipped']} were left as they are:")
            text += [f"  {each['id']} {each['reason']}" for each in outcome["skipped_requests"]]
        if outcome["still_open"]:
            text.append(
                f"{outcome['still_open']} have not ended yet, and will be charged by the version that they"
                " were admitted under: run this again afterwards."
            )
        return "\n".join(text)


def _sentence(figures: dict[str, Any]) -> str:
    difference = figures["difference_usd"]
    signed = f"-${difference[1:]}" if difference.startswith("-") else f"${difference}"
    return (
        f"{figures['changed']} of {figures['requests']} requests: ${figures['before_usd']} before,"
        f" ${figures['after_usd']} after, difference {signed}"
    )


def _outcome(result: RerateResult, is_dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": is_dry_run,
        "correction_id": str(result.correction.pk) if result.correction else None,
        **_figures(result),
        "organizations": [
            {"id": str(each.organization_id), **_figures(each)} for each in result.organizations
        ],
        "skipped": result.skipped,
        "skipped_requests": [
            {"id": str(identifier), "reason": reason} for identifier, reason in result.skipped_requests
        ],
        "still_open": result.still_open,
    }


def _figures(totals: RerateResult | OrganizationTotals) -> dict[str, Any]:
    return {
        "requests": totals.requests,
        "changed": totals.changed,
        "before_usd": usd(totals.before_nanousd),
        "after_usd": usd(totals.after_nanousd),
        "difference_usd": usd(totals.after_nanousd - totals.before_nanousd),
        "uncollected_usd": usd(totals.uncollected_nanousd),
    }
