"""The console's pages for corrections: rating a period again from a price version, and every run so far."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, F, QuerySet, Sum
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.admin.money import money
from billing.corrections.history import history_of
from billing.corrections.requests import CorrectionScope
from billing.corrections.rerate import count_requests, require_possible, rerate
from billing.corrections.totals import OrganizationTotals, RerateResult
from billing.models import Correction, CostAdjustment, PriceVersion, Reservation
from billing.models.corrections import REASON_LENGTH
from billing.money import short_usd
from gateway_site.api.errors import ApiError
from gateway_site.console.kit.model_admin import (
    ActionForm,
    Confirmation,
    PageExtension,
    Panel,
    ReadOnlyAdmin,
    Select,
    Selection,
    TextInput,
    address_of,
    confirmed_action,
    display,
    extend_pages,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor
from organization.lookups import find_organization
from organization.models import Organization

PERMISSION = "billing.add_correction"
# A page waits for so many; the command has no bound.
MOST_REQUESTS = 2_000
MOST_LISTED = 20
THIS_VERSION, IN_FORCE = "this", "in_force"
CHOICES = {
    IN_FORCE: "the version in force when each request was admitted",
    THIS_VERSION: "this version",
}


# --- rating a period again ----------------------------------------------------------------------------


class RerateForm(ActionForm):
    starts_at = forms.DateTimeField(
        label="From (UTC)", widget=TextInput, help_text="Requests admitted then or later: 2026-06-01 12:00."
    )
    ends_at = forms.DateTimeField(label="To (UTC)", widget=TextInput, help_text="And before this time.")
    charge_by = forms.ChoiceField(label="Charge by", choices=list(CHOICES.items()), widget=Select)
    organization = forms.CharField(
        label="Organization", required=False, widget=TextInput, help_text="Id or name. Empty: all of them."
    )
    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=REASON_LENGTH,
        widget=TextInput,
        help_text="Shown on receipts and in the audit trail.",
    )

    def clean_organization(self) -> Organization | None:
        text = self.cleaned_data["organization"]
        try:
            return find_organization(text) if text else None
        except ApiError as error:
            raise forms.ValidationError(error.message) from None

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if {"starts_at", "ends_at", "charge_by", "organization", "reason"} <= given.keys():
            scope = scope_of_form(self.rows[0], given)
            try:
                require_possible(scope, given["reason"])
            except ApiError as error:
                raise forms.ValidationError(error.message) from None
            if count_requests(scope, MOST_REQUESTS) > MOST_REQUESTS:
                raise forms.ValidationError(
                    f"That is more than {MOST_REQUESTS:,} requests. Use the command: {command_for(scope)}"
                )
        return given


def scope_of_form(version: PriceVersion, given: dict[str, Any]) -> CorrectionScope:
    """The requests that a filled form is about."""
    return CorrectionScope(
        model=version.model,
        starts_at=given["starts_at"],
        ends_at=given["ends_at"],
        version=version if given["charge_by"] == THIS_VERSION else None,
        organization=given["organization"],
    )


def command_for(scope: CorrectionScope) -> str:
    """The command that does the same, without a bound."""
    words = ["rerate", scope.model, "--from", scope.starts_at.isoformat(), "--to", scope.ends_at.isoformat()]
    if scope.version is not None:
        words += ["--version", str(scope.version.pk)]
    if scope.organization is not None:
        words += ["--organization", str(scope.organization.pk)]
    return f"python manage.py {shlex.join(words)}"


def rerate_confirmation_rows(version: PriceVersion, given: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """What a run would come to for each organization, once the form is filled."""
    yield "Model", version.model
    if "charge_by" not in given:
        return
    result = rerate(scope_of_form(version, given), actor=Actor.system(), is_dry_run=True)
    yield "Charged by", CHOICES[given["charge_by"]]
    yield "Requests that change", f"{result.changed:,} of {result.requests:,}"
    yield "All organizations", figures(result)
    names = dict(
        Organization.objects.filter(pk__in=[each.organization_id for each in result.organizations])
        .order_by("pk")
        .values_list("pk", "name")
    )
    for each in result.organizations[:MOST_LISTED]:
        yield names.get(each.organization_id, str(each.organization_id)), figures(each)
    if (more := len(result.organizations) - MOST_LISTED) > 0:
        yield "Organizations that are not listed", more
    if result.uncollected_nanousd:
        yield "Without credit, the operator's loss", money(result.uncollected_nanousd)
    if result.skipped:
        yield "Left as they are, without quantities or prices", f"{result.skipped:,}"
    if result.still_open:
        yield "Not ended yet, to be rated again later", f"{result.still_open:,}"


def figures(totals: OrganizationTotals | RerateResult) -> SafeString:
    """Old, new and difference in one line, and of how many requests."""
    return format_html(
        "{} requests: {} before, {} after, difference {}",
        f"{totals.changed:,}",
        money(totals.before_nanousd),
        money(totals.after_nanousd),
        money(totals.after_nanousd - totals.before_nanousd),
    )


@confirmed_action(
    label="Rerate a period",
    consequence="The model's requests of the period are charged again at once, by entries that are added: "
    "balances, limits and cost reports follow. More is charged as far as there is credit.",
    icon="currency_exchange",
    permission=PERMISSION,
    confirmation_rows=rerate_confirmation_rows,
    form=RerateForm,
    confirmation=Confirmation.REVIEW,
    selection=Selection.ONE,
    is_dangerous=True,
)
def rerate_period(page: Any, request: HttpRequest, version: PriceVersion, given: dict[str, Any]) -> str:
    result = rerate(scope_of_form(version, given), actor=Actor.staff(request.user), reason=given["reason"])
    difference = short_usd(result.after_nanousd - result.before_nanousd)
    return f"{result.changed:,} requests charged again, difference {difference}"


extend_pages(PriceVersion, PageExtension(permission=PERMISSION, actions=[rerate_period]))


# --- the corrections of one request -------------------------------------------------------------------


def corrections_panel(request: HttpRequest, reservation: Reservation) -> list[Panel]:
    """What corrections made of a request's charge; nothing for the many that have none."""
    revisions = history_of(reservation)
    if len(revisions) < 2:
        return []
    return [
        Panel(
            title="Corrections",
            headings=["Made", "Charged before", "Charged after", "Difference", "Operator's loss", "Reason"],
            rows=[
                [
                    timestamp(after.made_at),
                    money(before.charged_nanousd),
                    money(after.charged_nanousd),
                    money(after.difference_nanousd),
                    money(after.uncollected_nanousd),
                    after.reason,
                ]
                for before, after in pairwise(revisions)
            ],
            empty="",
            anchor="corrections",
        )
    ]


extend_pages(Reservation, PageExtension(permission="billing.view_costadjustment", panels=corrections_panel))


# --- runs so far --------------------------------------------------------------------------------------


def sums_of(corrections: Iterable[Correction]) -> dict[uuid.UUID, dict[str, int]]:
    """How many requests each run changed, and by how much."""
    found = CostAdjustment.objects.filter(correction__in=[each.pk for each in corrections])
    sums = found.values("correction_id").annotate(
        requests=Count("pk"),
        difference=Sum(F("charged_after_nanousd") - F("charged_before_nanousd")),
        uncollected=Sum("uncollected_nanousd"),
    )
    return {
        each["correction_id"]: {name: int(each[name]) for name in ("requests", "difference", "uncollected")}
        for each in sums
    }


@admin.register(Correction)
class CorrectionAdmin(ReadOnlyAdmin):
    """Every run that charged a period again, newest first. Rerate a period on the page of a price version."""

    about = "Periods that were charged again by other prices. What was charged before stays on record."
    first_step = "Add the right price from the right time on, then rate the period again."
    first_command = "python manage.py rerate MODEL --from TIME --to TIME --dry-run"
    list_display = ["created", "model", "period", "charged_by", "requests", "difference", "actor", "reason"]
    fields = readonly_fields = [
        "created",
        "model",
        "period",
        "charged_by",
        "organization",
        "requests",
        "difference",
        "uncollected",
        "reason",
        "actor",
        "identifier",
    ]
    ordering = ["-created_at", "-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Correction]:
        found: QuerySet[Correction] = super().get_queryset(request).select_related("version", "organization")
        return found

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        super().fill_page(request, rows)
        sums = sums_of(rows)
        for row in rows:
            row.__dict__["sums"] = sums.get(row.pk)

    def _sum(self, correction: Correction, name: str) -> int:
        if "sums" not in correction.__dict__:
            correction.__dict__["sums"] = sums_of([correction]).get(correction.pk)
        sums: dict[str, int] = correction.__dict__["sums"] or {}
        return sums.get(name, 0)

    @display(description="Made", ordering="created_at")
    def created(self, correction: Correction) -> SafeString:
        return timestamp(correction.created_at)

    @display(description="Requests admitted")
    def period(self, correction: Correction) -> SafeString:
        return format_html("{} to {}", timestamp(correction.starts_at), timestamp(correction.ends_at))

    @display(description="Charged by")
    def charged_by(self, correction: Correction) -> SafeString | str:
        if correction.version is None:
            return "the versions in force"
        return format_html(
            '<a class="text-link" href="{}">{}</a>', address_of(correction.version), correction.version
        )

    @display(description="Requests")
    def requests(self, correction: Correction) -> str:
        return f"{self._sum(correction, 'requests'):,}"

    @display(description="Difference")
    def difference(self, correction: Correction) -> SafeString:
        return money(self._sum(correction, "difference"))

    @display(description="Operator's loss")
    def uncollected(self, correction: Correction) -> SafeString:
        return money(self._sum(correction, "uncollected"))
