"""The console's pages for spending limits, which are set on the pages of what they limit."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing import services
from billing.admin.money import UsdField, exact_money, money, used_now
from billing.models import Account, CapPeriod, SpendingCap
from billing.money import short_usd
from gateway_site.console.kit.model_admin import (
    ActionForm,
    AutocompleteFilter,
    Confirmation,
    Panel,
    ReadOnlyAdmin,
    Select,
    Selection,
    TabularInline,
    address_of,
    confirmed_action,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor
from organization.models import Organization, Project

PERIOD_LABELS = {"day": "per day (UTC)", "month": "per month (UTC)", "total": "in total"}


def scope_of(row: services.SpendingScope | Account) -> services.SpendingScope:
    return row.organization if isinstance(row, Account) else row


def limits_on(scope: services.SpendingScope) -> QuerySet[SpendingCap]:
    """Every limit that a request of this scope meets, its own and those above it."""
    match scope:
        case Organization():
            wanted = Q(organization=scope, project=None, api_key=None)
        case Project():
            wanted = Q(organization=scope.organization_id, api_key=None) & (
                Q(project=None) | Q(project=scope)
            )
        case _:
            wanted = Q(organization=scope.project.organization_id) & (
                Q(project=None, api_key=None) | Q(project=scope.project_id) | Q(api_key=scope)
            )
    return (
        SpendingCap.objects.filter(wanted).select_related("organization", "project", "api_key").order_by("pk")
    )


def limits_panel(scope: services.SpendingScope) -> Panel:
    caps = list(limits_on(scope))
    used = used_now(caps)
    return Panel(
        title="Spending limits",
        headings=["Applies to", "Period", "Limit", "Used", "Left"],
        rows=[
            [
                format_html('<a class="text-link" href="{}">{}</a>', address_of(cap), scope_text(cap)),
                PERIOD_LABELS[cap.period],
                money(cap.limit_nanousd),
                money(used.get(cap.pk, 0)),
                money(max(0, cap.limit_nanousd - used.get(cap.pk, 0))),
            ]
            for cap in caps
        ],
        empty="None: the organization's credit is the only bound.",
        anchor="limits",
    )


def scope_text(cap: SpendingCap) -> str:
    """What a limit applies to, in words."""
    if cap.api_key:
        return f"key {cap.api_key}"
    return f"project {cap.project}" if cap.project else f"organization {cap.organization}"


# --- setting and changing -----------------------------------------------------------------------------


class LimitForm(ActionForm):
    period = forms.ChoiceField(choices=list(PERIOD_LABELS.items()), widget=Select, label="Period")
    limit = UsdField(label="Limit (USD)")

    def clean_limit(self) -> int:
        limit: int = self.cleaned_data["limit"]
        if limit < 0:
            raise forms.ValidationError("A limit is not negative.")
        return limit


class ChangedLimitForm(LimitForm):
    period = None  # type: ignore[assignment]


def limit_confirmation_rows(
    row: services.SpendingScope | Account, given: dict[str, Any]
) -> list[tuple[str, Any]]:
    scope = scope_of(row)
    if "limit" not in given:
        return [(scope_text(cap), limit_text(cap)) for cap in limits_on(scope)]
    caps = services.own_limits(scope).filter(period=given["period"])
    return _change(scope, given["period"], caps.first(), given["limit"])


def _change(
    scope: services.SpendingScope, period: str, cap: SpendingCap | None, limit: int
) -> list[tuple[str, Any]]:
    used = sum(services.used_in_period(scope, period))
    rows: list[tuple[str, Any]] = [
        ("Period", PERIOD_LABELS[period]),
        ("Current limit", money(cap.limit_nanousd) if cap else "none"),
        ("New limit", exact_money(limit)),
        ("Used in this period already", money(used)),
    ]
    if used >= limit:
        rows.append(("Warning", "This is used up: new requests are refused at once. Running ones go on."))
    return rows


def limit_text(cap: SpendingCap) -> str:
    return f"{short_usd(cap.limit_nanousd)} {PERIOD_LABELS[cap.period]}"


@confirmed_action(
    label="Set limit",
    consequence="Requests that could go over the limit are refused. An existing limit for the same period is "
    "replaced.",
    icon="speed",
    permission="billing.change_spendingcap",
    confirmation_rows=limit_confirmation_rows,
    form=LimitForm,
    confirmation=Confirmation.REVIEW,
    selection=Selection.ONE,
)
def set_limit(
    page: Any, request: HttpRequest, row: services.SpendingScope | Account, given: dict[str, Any]
) -> str:
    cap = services.set_spending_limit(
        scope=scope_of(row),
        period=given["period"],
        limit_nanousd=given["limit"],
        actor=Actor.staff(request.user),
    )
    return f"limited to {limit_text(cap)}"


def cap_confirmation_rows(cap: SpendingCap, given: dict[str, Any]) -> list[tuple[str, Any]]:
    if "limit" in given:
        return _change(scope_of_cap(cap), cap.period, cap, given["limit"])
    return [
        ("Applies to", scope_text(cap)),
        ("Period", PERIOD_LABELS[cap.period]),
        ("Current limit", money(cap.limit_nanousd)),
        ("Used in this period", money(used_now([cap]).get(cap.pk, 0))),
    ]


def scope_of_cap(cap: SpendingCap) -> services.SpendingScope:
    return cap.api_key or cap.project or cap.organization


# --- the list -----------------------------------------------------------------------------------------


class PeriodInline(TabularInline):
    model = CapPeriod
    fields = readonly_fields = ["starts", "ends", "held", "settled"]
    ordering = ["-starts_at"]
    max_num = 0
    verbose_name_plural = "Usage by period"
    per_page = 20

    @display(description="From")
    def starts(self, period: CapPeriod) -> SafeString:
        return timestamp(period.starts_at)

    @display(description="To")
    def ends(self, period: CapPeriod) -> SafeString:
        return timestamp(period.ends_at)

    @display(description="Held")
    def held(self, period: CapPeriod) -> SafeString:
        return money(period.held_nanousd)

    @display(description="Spent")
    def settled(self, period: CapPeriod) -> SafeString:
        return money(period.settled_nanousd)


@admin.register(SpendingCap)
class SpendingCapAdmin(ReadOnlyAdmin):
    """Limits that exist. New ones are set where they belong: on an organization, a project or a key."""

    about = "The most that an organization, a project or a key may spend in a day, in a month, or ever."
    heading = "Spending limits"
    first_step = "Open an organization, a project or a key and choose Set limit, or use this command."
    first_command = "python manage.py set_spending_limit --project PROJECT --period month USD"
    list_display = ["scope_name", "owner", "period", "limit", "used", "left"]
    list_filter = ["period", ("organization", AutocompleteFilter)]
    list_select_related = ["organization", "project", "api_key"]
    search_fields = ["organization__name", "project__name", "api_key__name"]
    fields = ["scope_name", "owner", "period", "limit"]
    readonly_fields = fields
    ordering = ["-id"]
    inlines = [PeriodInline]
    actions = ["change_limit", "remove"]

    def name_of(self, row: SpendingCap) -> str:
        return f"Limit of {scope_text(row)}, {row.period}"

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        used = used_now(rows)
        for row in rows:
            row.used_nanousd = used.get(row.pk, 0)

    @display(description="Applies to")
    def scope_name(self, cap: SpendingCap) -> str:
        return scope_text(cap)

    @display(description="Organization", ordering="organization__name")
    def owner(self, cap: SpendingCap) -> SafeString:
        return format_html(
            '<a class="text-link" href="{}">{}</a>', address_of(cap.organization), cap.organization
        )

    @display(description="Limit", ordering="limit_nanousd")
    def limit(self, cap: SpendingCap) -> SafeString:
        return money(cap.limit_nanousd)

    @display(description="Used this period")
    def used(self, cap: Any) -> SafeString:
        return money(cap.used_nanousd)

    @display(description="Left")
    def left(self, cap: Any) -> SafeString:
        return money(max(0, cap.limit_nanousd - cap.used_nanousd))

    @confirmed_action(
        label="Change",
        consequence="The new limit applies at once. Less than is used already stops new requests and no "
        "running ones.",
        icon="edit",
        confirmation_rows=cap_confirmation_rows,
        form=ChangedLimitForm,
        confirmation=Confirmation.REVIEW,
        selection=Selection.ONE,
    )
    def change_limit(self, request: HttpRequest, cap: SpendingCap, given: dict[str, Any]) -> str:
        changed = services.set_spending_limit(
            scope=scope_of_cap(cap),
            period=cap.period,
            limit_nanousd=given["limit"],
            actor=Actor.staff(request.user),
        )
        return f"limited to {limit_text(changed)}"

    @confirmed_action(
        label="Remove",
        consequence="The limit no longer applies, and what it counted is forgotten.",
        done="removed",
        icon="delete",
        confirmation_rows=cap_confirmation_rows,
        is_dangerous=True,
        removes_row=True,
    )
    def remove(self, request: HttpRequest, cap: SpendingCap) -> None:
        services.remove_spending_limit(cap=cap, actor=Actor.staff(request.user))
