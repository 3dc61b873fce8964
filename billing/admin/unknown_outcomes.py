"""What the console asks and says when people end requests whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest

from billing import reservation_services
from billing.admin.money import UsdField, exact_money, money
from billing.models import PriceVersion, Reservation
from billing.money import short_usd
from billing.prices import bill
from billing.prices.price import Quantities
from billing.reports.explained_charge import quantities_text
from billing.reservation_services import OwnedReservation, ResolvedTotals, UnknownResolution
from gateway_site.console.kit.model_admin import ActionForm
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor

# Of what a list's filter matches; `resolve_reservations` takes more.
MOST_AT_ONCE = 10_000

DONE = {
    UnknownResolution.RELEASE: "released",
    UnknownResolution.CHARGE_OBSERVED: "resolved",
    UnknownResolution.WRITE_OFF: "written off",
}


class CostForm(ActionForm):
    cost = UsdField(label="Settle at (USD)", help_text="What the request is known to have cost.")

    def clean_cost(self) -> int:
        cost_nanousd: int = self.cleaned_data["cost"]
        if cost_nanousd < 0:
            raise forms.ValidationError("A cost is not negative.")
        return cost_nanousd


class SeenForm(ActionForm):
    """Remembers which outcomes were unknown when people were asked: what became so later is not meant."""

    seen_until = forms.DateTimeField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        since = [row.unknown_at for row in unknown_among(self.rows) if row.unknown_at]
        # As text with every digit: a time of the form's own would be cut to the second.
        self.fields["seen_until"].initial = max(since).isoformat() if since else None


def is_unknown(reservation: Reservation) -> bool:
    return reservation.state == Reservation.State.UNKNOWN


def unknown_among(reservations: Sequence[Reservation]) -> list[Reservation]:
    return [reservation for reservation in reservations if is_unknown(reservation)]


def resolves_at(reservation: Reservation) -> datetime | None:
    """When the sweeper releases the reservation, if nobody resolves it before."""
    if not is_unknown(reservation) or reservation.unknown_at is None:
        return None
    return reservation.unknown_at + timedelta(minutes=settings.GATEWAY_UNKNOWN_MINUTES)


def usage_text(used: Quantities | None) -> str:
    """What was used, in words; empty where nothing is known of it."""
    return "" if used is None else quantities_text(used) or "nothing"


def reservation_confirmation_rows(reservation: Reservation, given: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a confirmation page shows of one reservation, and what settling it at a given cost comes to."""
    rows: list[tuple[str, Any]] = [
        ("State", reservation.get_state_display()),
        ("Project", f"{reservation.project} of {reservation.organization}"),
        ("Model", reservation.model),
        ("Admitted", timestamp(reservation.admitted_at)),
        ("Held", money(reservation.reserved_nanousd)),
    ]
    if (used := reservation.used_quantities) is not None:
        cost = bill.charge(reservation.price_version.card, used)
        rows.append(("Usage seen", f"{usage_text(used)}: {short_usd(cost)}"))
    if "cost" in given:
        within = min(given["cost"], reservation.reserved_nanousd)
        rows += [
            ("Charged to the customer", exact_money(within)),
            ("Released", money(reservation.reserved_nanousd - within)),
            ("Beyond the hold, charged as credit allows", money(given["cost"] - within)),
        ]
    return rows


def summary(reservations: list[Reservation]) -> list[tuple[str, Any]]:
    """What a confirmation page says of many reservations together."""
    unknown = unknown_among(reservations)
    observed = [reservation for reservation in unknown if reservation.used is not None]
    rows: list[tuple[str, Any]] = [
        ("Unknown outcomes", len(unknown)),
        ("Held for them", exact_money(sum(reservation.reserved_nanousd for reservation in unknown))),
        ("With usage to charge", f"{len(observed)}, {short_usd(_observed_cost(observed))}"),
        ("With nothing seen", len(unknown) - len(observed)),
    ]
    if others := len(reservations) - len(unknown):
        rows.append(("Left alone, because they are not unknown", others))
    return rows


def _observed_cost(observed: Sequence[Reservation]) -> int:
    versions = PriceVersion.objects.in_bulk({reservation.price_version_id for reservation in observed})
    cards = {identifier: version.card for identifier, version in versions.items()}
    return sum(
        bill.charge(cards[reservation.price_version_id], used)
        for reservation in observed
        if (used := reservation.used_quantities) is not None
    )


def resolve(
    request: HttpRequest, chosen: list[Reservation], given: dict[str, Any], resolution: UnknownResolution
) -> str:
    """Resolve those of the chosen that were unknown when the person was asked, and say what came of it."""
    until = given["seen_until"]
    # Rows that were named one by one are meant as they are.
    meant = [
        row for row in unknown_among(chosen) if not until or (row.unknown_at and row.unknown_at <= until)
    ]
    totals = reservation_services.resolve_chosen(
        [OwnedReservation(row.pk, row.organization_id) for row in meant],
        resolution=resolution,
        actor=Actor.staff(request.user),
    )
    return _outcome_text(totals, resolution, len(chosen) - len(meant))


def _outcome_text(totals: ResolvedTotals, resolution: UnknownResolution, left_alone: int) -> str:
    clauses = [f"{totals.resolved} {DONE[resolution]}"]
    if resolution is UnknownResolution.CHARGE_OBSERVED:
        clauses.append(f"{totals.charged} charged {short_usd(totals.charged_nanousd)} in all")
        clauses.append(f"{totals.released} had nothing to charge")
    if totals.operator_loss_nanousd:
        clauses.append(f"the operator's loss is {short_usd(totals.operator_loss_nanousd)}")
    if totals.already_resolved:
        clauses.append(f"{totals.already_resolved} resolved by somebody else meanwhile")
    if left_alone:
        clauses.append(f"{left_alone} left alone")
    return "; ".join(clauses)
