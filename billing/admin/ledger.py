"""The console's pages for reservations and cost lines: what was held, and what was charged for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing import reservation_services
from billing.admin import unknown_outcomes
from billing.admin.money import money
from billing.admin.price_versions import card_html
from billing.admin.unknown_outcomes import is_unknown, reservation_confirmation_rows, resolves_at, usage_text
from billing.models import CostLine, Reservation
from billing.money import short_usd, usd
from billing.reports.explained_charge import quantities_text
from billing.reports.outcome_sentences import outcome_sentence
from billing.reservation_services import UnknownResolution
from gateway_site.console.kit.model_admin import (
    AutocompleteFilter,
    Confirmation,
    ReadOnlyAdmin,
    Selection,
    ShortPaginator,
    confirmed_action,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor

STATE_COLOURS = {
    "held": "info",
    "unknown": "warning",
    "settled": "success",
    "released": "info",
    "written_off": "danger",
}
OPEN_STATES = ["held", "unknown"]


def rows_of_request(queryset: QuerySet[Any], column: str, typed: str) -> QuerySet[Any]:
    """The rows of one request, by its whole id: a part of one would read the whole table."""
    try:
        found: QuerySet[Any] = queryset.model._default_manager.filter(**{column: uuid.UUID(typed.strip())})
    except ValueError:
        return queryset.none()
    return found.order_by("pk")


class ReservationStateFilter(admin.SimpleListFilter):
    """Shows open reservations by default: they are few, and they are what an operator looks for."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, page: Any) -> list[tuple[str, str]]:
        return [*((state.value, state.label) for state in Reservation.State), ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        yield {**first, "display": "Open"}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Reservation]) -> QuerySet[Reservation]:
        if self.value() == "all":
            return queryset
        return queryset.filter(state__in=[self.value()] if self.value() else OPEN_STATES)


class OpenOwnerFilter(AutocompleteFilter):
    """Narrows open reservations to an organization's: of those that have ended, there is no index by it."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Reservation]) -> QuerySet[Reservation]:
        if self.value() and request.GET.get("state", "held") not in OPEN_STATES:
            message = (
                "Only open reservations are found by organization; its requests list those that have ended."
            )
            messages.warning(request, message)
            return queryset.none()
        found: QuerySet[Reservation] = super().queryset(request, queryset)
        return found


def _resolving_action(**options: Any) -> Callable[[Callable[..., str]], Any]:
    """Declare an action that ends unknown reservations by a rule, as many as a list's filter matches."""
    return confirmed_action(
        confirmation_rows=reservation_confirmation_rows,
        summary=unknown_outcomes.summary,
        applies=is_unknown,
        form=unknown_outcomes.SeenForm,
        selection=Selection.TOGETHER,
        most_rows=unknown_outcomes.MOST_AT_ONCE,
        **options,
    )


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Every request that was admitted. Only an unknown one can be acted on, and only through a service."""

    about = "Requests that hold credit: they run, or it could not be found out what they cost."
    nothing_yet = "No open reservations"
    first_step = "Choose All in the filter to see those that are settled."
    paginator = ShortPaginator
    list_display = ["short_id", "status", "owner", "model", "reserved", "charged", "admitted", "resolves"]
    list_filter = [ReservationStateFilter, ("organization", OpenOwnerFilter)]
    list_select_related = ["organization", "project", "price_version"]
    # What a provider's outage leaves behind is more than a page.
    list_disable_select_all = False
    search_fields = ["id"]
    search_help_text = "A request id, whole."
    actions = ["settle", "release", "charge_observed", "write_off"]
    fields = [
        "identifier",
        "status",
        "organization",
        "project",
        "customer_key",
        "model",
        "choices",
        "reserved",
        "charged",
        "loss",
        "outcome",
        "basis",
        "held_for",
        "usage",
        "version",
        "prices",
        "admitted",
        "dispatched",
        "deadline",
        "lost",
        "resolves",
        "resolved",
        "receipt",
    ]
    readonly_fields = fields

    def get_ordering(self, request: HttpRequest) -> list[str]:
        # By time where few rows have to be sorted, else by what has an index.
        few = request.GET.get("state", "held") in OPEN_STATES
        return ["-admitted_at"] if few else ["-id"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by a request's id, whatever the reservation's state."""
        return (rows_of_request(queryset, "pk", search_term) if search_term else queryset), False

    @confirmed_action(
        label="Settle",
        consequence="The request is charged at this cost at once. What was held beyond it goes back to the "
        "customer; what it cost beyond the hold is charged as far as credit and limits allow, and the "
        "operator bears what is left of it. This cannot be undone.",
        icon="task_alt",
        confirmation_rows=reservation_confirmation_rows,
        applies=is_unknown,
        form=unknown_outcomes.CostForm,
        confirmation=Confirmation.REVIEW,
        selection=Selection.ONE,
    )
    def settle(self, request: HttpRequest, reservation: Reservation, given: dict[str, Any]) -> str:
        _, outcome = reservation_services.settle_reservation(
            reservation_id=reservation.pk, amount_nanousd=given["cost"], actor=Actor.staff(request.user)
        )
        return f"settled, {short_usd(outcome.charged_nanousd or 0)} charged"

    @_resolving_action(
        label="Release",
        consequence="The requests are taken to have cost nothing: the credit goes back to the customers, and "
        "no loss is recorded. This cannot be undone.",
        icon="undo",
    )
    def release(self, request: HttpRequest, chosen: list[Reservation], given: dict[str, Any]) -> str:
        return unknown_outcomes.resolve(request, chosen, given, UnknownResolution.RELEASE)

    @_resolving_action(
        label="Charge what was seen",
        consequence="What was seen of each request is charged at once, as far as credit and limits allow. "
        "Where nothing was seen, the credit goes back to the customer, and what was held is recorded as the "
        "operator's loss. This cannot be undone.",
        icon="receipt_long",
    )
    def charge_observed(self, request: HttpRequest, chosen: list[Reservation], given: dict[str, Any]) -> str:
        return unknown_outcomes.resolve(request, chosen, given, UnknownResolution.CHARGE_OBSERVED)

    @_resolving_action(
        label="Write off",
        consequence="The credit goes back to the customer, and the operator bears what the requests cost. "
        "This cannot be undone.",
        icon="money_off",
        is_dangerous=True,
    )
    def write_off(self, request: HttpRequest, chosen: list[Reservation], given: dict[str, Any]) -> str:
        return unknown_outcomes.resolve(request, chosen, given, UnknownResolution.WRITE_OFF)

    # --- columns -------------------------------------------------------------------------------------

    @display(description="Request")
    def short_id(self, reservation: Reservation) -> SafeString:
        return format_html('<span class="mono" title="{}">{}</span>', reservation.pk, str(reservation.pk)[:8])

    @display(description="State", label=STATE_COLOURS)
    def status(self, reservation: Reservation) -> str:
        return reservation.state

    @display(description="Project")
    def owner(self, reservation: Reservation) -> SafeString:
        return format_html('{}<span class="under">{}</span>', reservation.project, reservation.organization)

    @display(description="API key")
    def customer_key(self, reservation: Reservation) -> str:
        return str(reservation.api_key)

    @display(description="Held")
    def reserved(self, reservation: Reservation) -> SafeString:
        return money(reservation.reserved_nanousd)

    @display(description="Charged")
    def charged(self, reservation: Reservation) -> SafeString | str:
        return "" if reservation.charged_nanousd is None else money(reservation.charged_nanousd)

    @display(description="Operator's loss")
    def loss(self, reservation: Reservation) -> SafeString:
        return money(reservation.operator_loss_nanousd)

    @display(description="Outcome")
    def outcome(self, reservation: Reservation) -> str:
        return outcome_sentence(reservation)

    @display(description="Held for at most")
    def held_for(self, reservation: Reservation) -> str:
        return quantities_text(reservation.bound_quantities)

    @display(description="Usage")
    def usage(self, reservation: Reservation) -> str:
        return usage_text(reservation.used_quantities)

    @display(description="Price version at admission")
    def version(self, reservation: Reservation) -> SafeString:
        version = reservation.price_version
        return format_html(
            '<span class="mono" title="{}">{}</span><span class="under">from {} UTC, {}</span>',
            version.pk,
            version.pk.hex[:8],
            f"{version.valid_from:%Y-%m-%d %H:%M:%S}",
            version.source,
        )

    @display(description="Prices")
    def prices(self, reservation: Reservation) -> SafeString:
        return card_html(reservation.price_version.card)

    @display(description="Admitted", ordering="admitted_at")
    def admitted(self, reservation: Reservation) -> SafeString:
        return timestamp(reservation.admitted_at)

    @display(description="Sent to a backend")
    def dispatched(self, reservation: Reservation) -> SafeString:
        return timestamp(reservation.dispatched_at)

    @display(description="Deadline")
    def deadline(self, reservation: Reservation) -> SafeString | str:
        # Of one that is over it says nothing.
        return timestamp(reservation.deadline_at) if reservation.state == Reservation.State.HELD else ""

    @display(description="Outcome unknown since")
    def lost(self, reservation: Reservation) -> SafeString:
        return timestamp(reservation.unknown_at)

    @display(description="Resolves by itself")
    def resolves(self, reservation: Reservation) -> SafeString:
        return timestamp(resolves_at(reservation), empty="")

    @display(description="Resolved")
    def resolved(self, reservation: Reservation) -> SafeString:
        return timestamp(reservation.resolved_at)

    @display(description="Receipt")
    def receipt(self, reservation: Reservation) -> SafeString:
        address = reverse("admin:inference_activity_change", args=[reservation.pk])
        return format_html('<a class="text-link" href="{}">Receipt of the request</a>', address)


@admin.register(CostLine)
class CostLineAdmin(ReadOnlyAdmin):
    """The ledger of what was charged. Append-only, in the database itself."""

    about = "Every line of every settled request, as it was charged. It can only grow."
    first_step = "The first request that is answered makes the first lines."
    paginator = ShortPaginator
    list_display = ["day_charged", "line_item", "owner", "key", "quantity", "amount", "request_id"]
    list_select_related = ["organization", "project", "api_key"]
    search_fields = ["reservation_id"]
    search_help_text = "A request id, whole."
    ordering = ["-id"]
    fields = ["day_charged", "line_item", "organization", "project", "key", "quantity", "exact", "request_id"]
    readonly_fields = fields

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (rows_of_request(queryset, "reservation", search_term) if search_term else queryset), False

    @display(description="Day (UTC)")
    def day_charged(self, line: CostLine) -> str:
        return line.day.isoformat()

    @display(description="Project")
    def owner(self, line: CostLine) -> SafeString:
        return format_html('{}<span class="under">{}</span>', line.project, line.organization)

    @display(description="API key")
    def key(self, line: CostLine) -> SafeString:
        return format_html(
            '{}<span class="under mono">{}</span>', line.api_key.name, line.api_key.redacted_value
        )

    @display(description="Amount")
    def amount(self, line: CostLine) -> SafeString:
        return money(line.amount_nanousd)

    @display(description="Amount (USD, exact)")
    def exact(self, line: CostLine) -> str:
        return usd(line.amount_nanousd)

    @display(description="Request")
    def request_id(self, line: CostLine) -> SafeString:
        return format_html(
            '<a class="text-link mono" href="{}" title="{}">{}</a>',
            reverse("admin:billing_reservation_change", args=[line.reservation_id]),
            line.reservation_id,
            str(line.reservation_id)[:8],
        )
