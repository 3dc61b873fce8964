"""The console's pages for reservations and cost lines: what was held, and what was charged for it."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing import services
from billing.admin.money import UsdField, exact_money, money
from billing.models import CostLine, Reservation
from billing.money import price_text, short_usd, usd
from billing.prices.bill import cost
from billing.prices.parts import PARTS
from gateway_site.console.kit.model_admin import (
    ActionForm,
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
        return queryset.filter(state__in=[self.value()] if self.value() else ["held", "unknown"])


class CostForm(ActionForm):
    cost = UsdField(label="Settle at (USD)", help_text="What the request is known to have cost.")

    def clean_cost(self) -> int:
        cost_nanousd: int = self.cleaned_data["cost"]
        if cost_nanousd < 0:
            raise forms.ValidationError("A cost is not negative.")
        return cost_nanousd


def reservation_confirmation_rows(reservation: Reservation, given: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("State", reservation.get_state_display()),
        ("Project", f"{reservation.project} of {reservation.organization}"),
        ("Model", reservation.model),
        ("Admitted", timestamp(reservation.admitted_at)),
        ("Held", money(reservation.reserved_nanousd)),
    ]
    if (observed := reservation.observed) is not None:
        seen = f"{observed.prompt} prompt and {observed.completion} completion tokens"
        rows.append(("Tokens seen", f"{seen}, {short_usd(cost(reservation.price, observed))}"))
    if "cost" in given:
        charged = min(given["cost"], reservation.reserved_nanousd)
        rows += [
            ("Charged to the customer", exact_money(charged)),
            ("Released", money(reservation.reserved_nanousd - charged)),
            ("Operator's loss", money(given["cost"] - charged)),
        ]
    return rows


def is_unknown(reservation: Reservation) -> bool:
    return reservation.state == Reservation.State.UNKNOWN


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Every request that was admitted. Only an unknown one can be acted on, and only through a service."""

    about = "Requests that hold credit: they run, or it could not be found out what they cost."
    nothing_yet = "No open reservations"
    first_step = "Choose All in the filter to see those that are settled."
    paginator = ShortPaginator
    list_display = ["short_id", "status", "owner", "model", "reserved", "charged", "admitted"]
    list_filter = [ReservationStateFilter]
    list_select_related = ["organization", "project"]
    search_fields = ["id"]
    search_help_text = "A request id, whole."
    actions = ["settle", "write_off"]
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
        "basis",
        "observed",
        "prices",
        "admitted",
        "dispatched",
        "deadline",
        "lost",
        "resolved",
        "receipt",
    ]
    readonly_fields = fields

    def get_ordering(self, request: HttpRequest) -> list[str]:
        # By time where few rows have to be sorted, else by what has an index.
        few = request.GET.get("state", "held") in ("held", "unknown")
        return ["-admitted_at"] if few else ["-id"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by a request's id, whatever the reservation's state."""
        return (rows_of_request(queryset, "pk", search_term) if search_term else queryset), False

    @confirmed_action(
        label="Settle",
        consequence="The request is charged at this cost at once. What was held beyond it goes back to the "
        "customer; what it cost beyond the hold is the operator's loss. This cannot be undone.",
        icon="task_alt",
        confirmation_rows=reservation_confirmation_rows,
        applies=is_unknown,
        form=CostForm,
        confirmation=Confirmation.REVIEW,
        selection=Selection.ONE,
    )
    def settle(self, request: HttpRequest, reservation: Reservation, given: dict[str, Any]) -> str:
        _, outcome = services.resolve_reservation(
            reservation_id=reservation.pk, amount_nanousd=given["cost"], actor=Actor.staff(request.user)
        )
        return f"settled, {short_usd(outcome.charged_nanousd or 0)} charged"

    @confirmed_action(
        label="Write off",
        consequence="The credit goes back to the customer, and the operator bears what the requests cost. "
        "This cannot be undone.",
        done="written off",
        icon="money_off",
        confirmation_rows=reservation_confirmation_rows,
        applies=is_unknown,
        is_dangerous=True,
    )
    def write_off(self, request: HttpRequest, reservation: Reservation) -> None:
        services.resolve_reservation(
            reservation_id=reservation.pk, amount_nanousd=None, actor=Actor.staff(request.user)
        )

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

    @display(description="Tokens seen")
    def observed(self, reservation: Reservation) -> str:
        seen = reservation.observed
        return f"{seen.prompt} prompt ({seen.cached} cached), {seen.completion} completion" if seen else ""

    @display(description="Prices (USD each)")
    def prices(self, reservation: Reservation) -> SafeString:
        price = reservation.price
        shown = ((part.label, price_text(getattr(price, part.name))) for part in PARTS)
        return format_html_join("", "<div>{}: {}</div>", shown)

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
