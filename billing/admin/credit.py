"""The console's pages for credit: accounts, grants, and the action that grants credit."""

from __future__ import annotations

import secrets
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing import services
from billing.admin.money import SPENT_DAYS, UsdField, exact_money, money, spent_by
from billing.admin.spending_limits import limits_panel, set_limit
from billing.models import Account, CreditGrant, Reservation
from billing.money import short_usd
from gateway_site.api.errors import ApiError
from gateway_site.console.kit.model_admin import (
    ActionForm,
    Confirmation,
    ModelAdmin,
    PageExtension,
    Panel,
    ReadOnlyAdmin,
    Selection,
    TextInput,
    address_of,
    confirmed_action,
    display,
    extend_pages,
    render_page,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor
from organization.lookups import find_organization
from organization.models import Organization, Project, ProjectKey

AVAILABLE = F("granted_nanousd") - F("held_nanousd") - F("settled_nanousd")
LATEST_GRANTS = 10


# --- granting -----------------------------------------------------------------------------------------


class GrantForm(ActionForm):
    usd = UsdField(label="USD", help_text="A negative amount takes back what is neither spent nor held.")
    reason = forms.CharField(max_length=500, required=False, widget=TextInput)
    reference = forms.CharField(
        max_length=200,
        required=False,
        widget=TextInput,
        help_text="An invoice or a payment. The same one again grants nothing.",
    )
    # Stands in for a reference, so that a form that is sent twice grants once.
    form_id = forms.CharField(widget=forms.HiddenInput, initial=lambda: secrets.token_hex(8), max_length=32)

    def clean_usd(self) -> int:
        usd: int = self.cleaned_data["usd"]
        if usd == 0:
            raise forms.ValidationError("A grant of nothing is not recorded.")
        if (left := account_of(self.rows[0]).available_nanousd) + usd < 0:
            raise forms.ValidationError(f"Only {short_usd(left)} is left to take back.")
        return usd

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        given["once"] = given.get("reference") or f"console {given.get('form_id')}"
        return given


def organization_of(row: Organization | Account) -> Organization:
    return row.organization if isinstance(row, Account) else row


def account_of(row: Organization | Account) -> Account:
    """The account as it is now; an empty one where there was no grant yet."""
    return Account.objects.filter(pk=row.pk).first() or Account()


def grant_confirmation_rows(row: Organization | Account, given: dict[str, Any]) -> list[tuple[str, Any]]:
    account = account_of(row)
    rows: list[tuple[str, Any]] = [
        ("Available now", money(account.available_nanousd)),
        ("Held for running requests", money(account.held_nanousd)),
    ]
    if "usd" in given:
        amount = given["usd"]
        rows += [
            ("Granted" if amount >= 0 else "Taken back", exact_money(abs(amount))),
            ("Available afterwards", exact_money(account.available_nanousd + amount)),
            ("Reason", given["reason"] or "none given"),
            ("Reference", given["reference"] or "none given"),
        ]
    return rows


@confirmed_action(
    label="Grant credit",
    consequence="The credit can be spent at once by every project of the organization; what is taken back "
    "cannot. A grant is never edited; a wrong one is corrected by another.",
    icon="add_card",
    permission="billing.add_creditgrant",
    confirmation_rows=grant_confirmation_rows,
    form=GrantForm,
    confirmation=Confirmation.REVIEW,
    selection=Selection.ONE,
)
def grant_credit(page: Any, request: HttpRequest, row: Organization | Account, given: dict[str, Any]) -> str:
    organization = organization_of(row)
    grant, is_new = services.grant_credit(
        organization=organization,
        amount_nanousd=given["usd"],
        reason=given["reason"],
        reference=given["once"],
        actor=Actor.staff(request.user),
    )
    available = short_usd(Account.objects.get(pk=organization.pk).available_nanousd)
    verb = "granted" if is_new else "was granted before, and not again:"
    return f"{verb} {short_usd(grant.amount_nanousd)}; {available} is available"


# --- accounts and grants ------------------------------------------------------------------------------


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """The list of accounts: what each organization has left."""

    about = "What each organization may still spend. Requests are paid from it in advance."
    first_step = "An account appears with the first grant: open an organization and choose Grant credit."
    first_command = "python manage.py grant_credit ORGANIZATION USD"
    counted = ("account", "accounts")
    list_display = ["owner", "available", "held", "open_requests", "settled", "granted"]
    list_select_related = ["organization"]
    search_fields = ["organization__name"]
    ordering = ["organization__name"]
    fields = ["owner", "available", "held", "settled", "granted"]
    readonly_fields = fields
    actions = [grant_credit, set_limit]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Account]:
        found: QuerySet[Account] = super().get_queryset(request)
        return found.select_related("organization")

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        is_open = Q(state__in=["held", "unknown"], organization__in=[row.pk for row in rows])
        counts = dict(
            Reservation.objects.filter(is_open)
            .values("organization")
            .annotate(number=Count("pk"))
            .values_list("organization", "number")
        )
        for row in rows:
            row.open_count = counts.get(row.pk, 0)

    def panels_of(self, request: HttpRequest, row: Account) -> list[Panel]:
        return [*super().panels_of(request, row), limits_panel(row.organization), grants_panel(row)]

    @display(description="Organization", ordering="organization__name")
    def owner(self, account: Account) -> str:
        return str(account.organization)

    @display(description="Available", ordering=AVAILABLE)
    def available(self, account: Account) -> SafeString:
        return money(account.available_nanousd)

    @display(description="Held", ordering="held_nanousd")
    def held(self, account: Account) -> SafeString:
        return money(account.held_nanousd)

    @display(description="Unsettled requests")
    def open_requests(self, account: Any) -> int:
        return int(account.open_count)

    @display(description="Spent", ordering="settled_nanousd")
    def settled(self, account: Account) -> SafeString:
        return money(account.settled_nanousd)

    @display(description="Granted", ordering="granted_nanousd")
    def granted(self, account: Account) -> SafeString:
        return money(account.granted_nanousd)


def grants_panel(account: Account) -> Panel:
    listing = reverse("admin:billing_creditgrant_changelist")
    return Panel(
        title="Latest grants",
        headings=["Time", "Amount", "Reason", "Reference"],
        rows=[
            [timestamp(grant.created_at), money(grant.amount_nanousd), grant.reason, grant.reference or ""]
            for grant in account.grants.order_by("-id")[:LATEST_GRANTS]
        ],
        empty="There were none.",
        link=(f"{listing}?account__organization__id__exact={account.pk}", "All grants"),
    )


@admin.register(CreditGrant)
class CreditGrantAdmin(ModelAdmin):
    """The list of grants. It is append-only: a grant is corrected by another."""

    about = "Every grant of credit, and every one that took some back. None is ever edited."
    first_step = "Choose an organization to grant credit to, here or with this command."
    first_command = "python manage.py grant_credit ORGANIZATION USD --reason TEXT"
    list_display = ["created", "organization", "amount", "reason", "reference"]
    list_select_related = ["account__organization"]
    linked_lookups = ("account__organization__id__exact",)
    search_fields = ["account__organization__name", "reason", "reference"]
    ordering = ["-id"]
    fields = ["organization", "amount", "reason", "reference", "created"]
    readonly_fields = fields

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Ask for the organization, then go to the action on its page. This page only reads."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        typed = request.GET.get("organization", "").strip()
        if typed:
            try:
                chosen = find_organization(typed)
            except ApiError as error:
                self.message_user(request, error.message, messages.ERROR)
            else:
                name = "admin:organization_organization_do"
                return HttpResponseRedirect(reverse(name, args=[chosen.pk, "grant_credit"]))
        names = Organization.objects.order_by("name").values_list("name", flat=True)[:200]
        context = {"typed": typed, "names": names}
        return render_page(self, request, "admin/billing/choose_organization.html", "Grant credit", context)

    @display(description="Time", ordering="id")
    def created(self, grant: CreditGrant) -> SafeString:
        return timestamp(grant.created_at)

    @display(description="Organization", ordering="account__organization__name")
    def organization(self, grant: CreditGrant) -> SafeString:
        return format_html(
            '<a class="text-link" href="{}">{}</a>', address_of(grant.account), grant.account.organization
        )

    @display(description="Amount", ordering="amount_nanousd")
    def amount(self, grant: CreditGrant) -> SafeString:
        return money(grant.amount_nanousd)


# --- on the pages of organizations, projects and keys -------------------------------------------------


def organization_cells(rows: list[Any]) -> dict[Any, list[Any]]:
    ids = [row.pk for row in rows]
    left = {account.pk: account.available_nanousd for account in Account.objects.filter(pk__in=ids)}
    spent = spent_by("organization", ids, ids)
    return {row.pk: [money(left.get(row.pk, 0)), money(spent.get(row.pk, 0))] for row in rows}


def project_cells(rows: list[Any]) -> dict[Any, list[Any]]:
    spent = spent_by("project", [row.pk for row in rows], [row.organization_id for row in rows])
    return {row.pk: [money(spent.get(row.pk, 0))] for row in rows}


def key_cells(rows: list[Any]) -> dict[Any, list[Any]]:
    owners = [row.project.organization_id for row in rows]
    spent = spent_by("api_key", [row.pk for row in rows], owners)
    return {row.pk: [money(spent.get(row.pk, 0))] for row in rows}


def credit_panel(request: HttpRequest, organization: Organization) -> list[Panel]:
    account = Account.objects.filter(pk=organization.pk).first()
    spent = spent_by("organization", [organization.pk], [organization.pk]).get(organization.pk, 0)
    known = account or Account()
    amounts = [known.available_nanousd, known.held_nanousd, known.settled_nanousd, spent]
    panel = Panel(
        title="Credit",
        headings=["Available", "Held", "Spent ever", f"Spent in {SPENT_DAYS} days"],
        rows=[[money(each) for each in amounts]],
        empty="",
        link=(address_of(account), "The account") if account else None,
    )
    return [panel, limits_panel(organization)]


def spending_panels(request: HttpRequest, row: Project | ProjectKey) -> list[Panel]:
    return [limits_panel(row)]


extend_pages(
    Organization,
    PageExtension(
        permission="billing.view_account",
        columns=["Credit left", f"Spent {SPENT_DAYS} d"],
        cells=organization_cells,
        actions=[grant_credit, set_limit],
        panels=credit_panel,
    ),
)
for scope, cells in ((Project, project_cells), (ProjectKey, key_cells)):
    extend_pages(
        scope,
        PageExtension(
            permission="billing.view_costline",
            columns=[f"Spent {SPENT_DAYS} d"],
            cells=cells,
            actions=[set_limit],
            panels=spending_panels,
        ),
    )
