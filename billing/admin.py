"""The console's pages for credit: windows on the ledger, and doors to the services that operators use."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest

from billing import services
from billing.models import Account, CapPeriod, CostLine, CreditGrant, Reservation, SpendingCap
from billing.money import parse_usd, usd
from gateway_site.api.console import (
    ModelAdmin,
    ReadOnlyAdmin,
    ShortPaginator,
    TabularInline,
    confirmed,
    display,
)
from gateway_site.api.errors import ApiError
from organization.audit import Actor
from organization.lookups import find_organization

STATE_COLOURS = {
    "held": "info",
    "unknown": "warning",
    "settled": "success",
    "released": "info",
    "written_off": "danger",
}


AVAILABLE = F("granted_nanousd") - F("held_nanousd") - F("settled_nanousd")


class UsdField(forms.CharField):
    """An amount, exactly as typed; the cleaned value is nano-USD."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_usd(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """What each organization has left."""

    list_display = ["organization", "available", "held", "settled", "granted"]
    list_select_related = ["organization"]
    search_fields = ["organization__name"]
    fields = ["organization", "available", "held", "settled", "granted"]

    @display(
        description="Available (USD)",
        ordering=F("granted_nanousd") - F("held_nanousd") - F("settled_nanousd"),
    )
    def available(self, account: Account) -> str:
        return usd(account.available_nanousd)

    @display(description="Held (USD)", ordering="held_nanousd")
    def held(self, account: Account) -> str:
        return usd(account.held_nanousd)

    @display(description="Spent (USD)", ordering="settled_nanousd")
    def settled(self, account: Account) -> str:
        return usd(account.settled_nanousd)

    @display(description="Granted (USD)", ordering="granted_nanousd")
    def granted(self, account: Account) -> str:
        return usd(account.granted_nanousd)


class GrantForm(forms.ModelForm):
    organization = forms.CharField(help_text="Its id or name.")
    usd = UsdField(label="USD", help_text="A negative amount takes back what is neither spent nor held.")

    class Meta:
        model = CreditGrant
        fields = ["reason", "reference"]

    def clean_organization(self) -> Any:
        try:
            return find_organization(self.cleaned_data["organization"])
        except ApiError as error:
            raise forms.ValidationError(error.message) from None


@admin.register(CreditGrant)
class CreditGrantAdmin(ModelAdmin):
    """Append-only: a grant is corrected by another."""

    form = GrantForm
    list_display = ["created_at", "organization", "amount", "reason", "reference"]
    list_select_related = ["account__organization"]
    search_fields = ["account__organization__name", "reason", "reference"]
    ordering = ["-id"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return ["organization", "usd", "reason", "reference"]
        return ["organization", "amount", "reason", "reference", "created_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if obj is None else self.get_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: CreditGrant, form: Any, change: bool) -> None:
        made, _ = services.grant_credit(
            organization=form.cleaned_data["organization"],
            amount_nanousd=form.cleaned_data["usd"],
            reason=form.cleaned_data["reason"],
            reference=form.cleaned_data["reference"] or None,
            actor=Actor.staff(request.user),
        )
        obj.pk, obj.account = made.pk, made.account

    @display(description="Organization")
    def organization(self, grant: CreditGrant) -> str:
        return str(grant.account.organization)

    @display(description="USD", ordering="amount_nanousd")
    def amount(self, grant: CreditGrant) -> str:
        return usd(grant.amount_nanousd)


class CapForm(forms.ModelForm):
    limit = UsdField(label="Limit (USD)")

    class Meta:
        model = SpendingCap
        fields = ["organization", "project", "api_key", "period"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "organization" in self.fields:
            self.fields["organization"].required = False
        if self.instance.pk:
            self.fields["limit"].initial = usd(self.instance.limit_nanousd)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.instance.pk:
            chosen = [values[name] for name in ("organization", "project", "api_key") if values.get(name)]
            if len(chosen) != 1:
                raise forms.ValidationError("Choose an organization, or a project, or a key.")
            values["scope"] = chosen[0]
        return values

    def validate_unique(self) -> None:
        """Setting a limit that exists changes it."""


class PeriodInline(TabularInline):
    model = CapPeriod
    fields = readonly_fields = ["starts_at", "ends_at", "held", "settled"]
    ordering = ["-starts_at"]
    max_num = 0
    verbose_name_plural = "What it has counted"

    @display(description="Held (USD)")
    def held(self, period: CapPeriod) -> str:
        return usd(period.held_nanousd)

    @display(description="Spent (USD)")
    def settled(self, period: CapPeriod) -> str:
        return usd(period.settled_nanousd)


@admin.register(SpendingCap)
class SpendingCapAdmin(ModelAdmin):
    form = CapForm
    list_display = ["organization", "project", "api_key", "period", "limit"]
    list_filter = ["period"]
    list_select_related = ["organization", "project", "api_key"]
    search_fields = ["organization__name", "project__name"]
    autocomplete_fields = ["organization", "project", "api_key"]
    inlines = [PeriodInline]
    actions = ["remove"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["organization", "project", "api_key", "period", "limit"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["organization", "project", "api_key", "period"] if obj else []

    def save_model(self, request: HttpRequest, obj: SpendingCap, form: Any, change: bool) -> None:
        scope = (obj.api_key or obj.project or obj.organization) if change else form.cleaned_data["scope"]
        made = services.set_spending_limit(
            scope=scope,
            period=obj.period,
            limit_nanousd=form.cleaned_data["limit"],
            actor=Actor.staff(request.user),
        )
        obj.pk, obj.organization = made.pk, made.organization

    @display(description="Limit (USD)", ordering="limit_nanousd")
    def limit(self, cap: SpendingCap) -> str:
        return usd(cap.limit_nanousd)

    @confirmed(
        label="Remove", consequence="These limits no longer apply, and what they counted is forgotten."
    )
    def remove(self, request: HttpRequest, cap: SpendingCap) -> None:
        services.remove_spending_limit(cap=cap, actor=Actor.staff(request.user))


class StateFilter(admin.SimpleListFilter):
    """Open ones unless asked: they are few, and they are what an operator looks for."""

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


class ReservationForm(forms.ModelForm):
    cost = UsdField(
        label="Settle at (USD)", help_text="What the request is known to have cost. It is charged at once."
    )

    class Meta:
        model = Reservation
        fields: list[str] = []


@admin.register(Reservation)
class ReservationAdmin(ModelAdmin):
    """Every request that was admitted. Only an unknown one can be acted on, and only through a service."""

    form = ReservationForm
    paginator = ShortPaginator
    list_display = ["id", "status", "organization", "project", "model", "reserved", "charged", "admitted_at"]
    list_filter = [StateFilter]
    list_select_related = ["organization", "project"]
    search_fields = ["id"]
    actions = ["write_off"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_resolvable = obj is not None and obj.state == Reservation.State.UNKNOWN
        return is_resolvable and super().has_change_permission(request, obj)

    def get_ordering(self, request: HttpRequest) -> list[str]:
        # By time where few rows have to be sorted, else by what has an index.
        few = request.GET.get("state", "held") in ("held", "unknown")
        return ["-admitted_at"] if few else ["-id"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A request's id, whatever its state; a part of one would read the whole table."""
        if not search_term:
            return queryset, False
        try:
            found = Reservation.objects.filter(pk=uuid.UUID(search_term.strip()))
            return found.order_by("id"), False
        except ValueError:
            return queryset.none(), False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        shown = [field.name for field in Reservation._meta.fields]
        return [*shown, "cost"] if self.has_change_permission(request, obj) else shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [field.name for field in Reservation._meta.fields]

    def save_model(self, request: HttpRequest, obj: Reservation, form: Any, change: bool) -> None:
        services.resolve_reservation(
            reservation_id=obj.pk,
            amount_nanousd=form.cleaned_data["cost"],
            actor=Actor.staff(request.user),
        )

    @confirmed(
        label="Write off",
        consequence="The credit goes back to the customer, and the operator bears what the requests cost.",
    )
    def write_off(self, request: HttpRequest, reservation: Reservation) -> None:
        services.resolve_reservation(
            reservation_id=reservation.pk, amount_nanousd=None, actor=Actor.staff(request.user)
        )

    @display(description="State", label=STATE_COLOURS)
    def status(self, reservation: Reservation) -> str:
        return reservation.state

    @display(description="Held (USD)")
    def reserved(self, reservation: Reservation) -> str:
        return usd(reservation.reserved_nanousd)

    @display(description="Charged (USD)")
    def charged(self, reservation: Reservation) -> str:
        return "" if reservation.charged_nanousd is None else usd(reservation.charged_nanousd)


@admin.register(CostLine)
class CostLineAdmin(ReadOnlyAdmin):
    """The ledger of what was charged. Append-only, in the database itself."""

    paginator = ShortPaginator
    list_display = ["day", "line_item", "organization", "project", "api_key", "quantity", "amount"]
    list_select_related = ["organization", "project", "api_key"]
    ordering = ["-id"]

    @display(description="USD")
    def amount(self, line: CostLine) -> str:
        return usd(line.amount_nanousd)
