"""The console's page of requests: found by what is known about them, and the receipt of each."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.models import Reservation
from billing.money import short_usd
from billing.reports.explained_charge import ExplainedCharge
from gateway_site.console.kit.model_admin import ReadOnlyAdmin, ShortPaginator, display, render_page
from gateway_site.console.kit.timestamps import timestamp
from inference.activity import receipts, search
from inference.activity.trace import CLIENT_CLOSED_REQUEST
from inference.admin.request_filters import (
    PARAMETERS,
    KeyFilter,
    ModelFilter,
    OwnerFilter,
    RequestList,
    RequestStatusFilter,
    TimeFilter,
)
from inference.models import Activity

NONE = "\N{EN DASH}"


@admin.register(Activity)
class ActivityAdmin(ReadOnlyAdmin):
    """The page of requests, with the receipt of each."""

    list_display = [
        "ended",
        "short_id",
        "owner",
        "model_and_deployment",
        "outcome",
        "tokens",
        "cost",
        "latency",
    ]
    list_display_links = ["short_id"]
    list_filter = [
        TimeFilter,
        RequestStatusFilter,
        ModelFilter,
        ("project", OwnerFilter),
        ("organization", OwnerFilter),
        KeyFilter,
    ]
    list_filter_sheet = True
    list_before_template = "admin/inference/activity/chips.html"
    sortable_by = ()
    search_fields = ["id"]
    search_help_text = "Request id, or its first 8 digits"
    paginator = ShortPaginator
    about = "Every request to the API is here, half a second after it ended, with its receipt."
    first_step = "Give a project a key and ask a model with it, or try one in the playground."

    # --- the list ------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Activity]:
        # Not joined: they would be read before the rows are cut to a page if a planner liked it so.
        return Activity.objects.defer("attempt_log").prefetch_related("project", "organization", "api_key")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        bounds = search.id_range(object_id)
        if bounds is None or bounds[0] != bounds[1]:
            return None
        whole = Activity.objects.select_related("project", "organization", "api_key")
        return whole.filter(pk=bounds[0]).first()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RequestList]:
        return RequestList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in PARAMETERS

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        shown = super().get_list_display(request)
        return shown if _sees_money(request) else [name for name in shown if name != "cost"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by id alone, whatever the filters are: who has one wants that request."""
        if not search_term:
            return queryset, False
        bounds = search.id_range(search_term)
        if bounds is None:
            self.message_user(
                request,
                "Search for a request id, or at least its first 8 digits. Ids that begin with chatcmpl- or"
                " resp_ are taken as they are.",
                messages.WARNING,
            )
            return queryset.none(), False
        return self.get_queryset(request).filter(pk__gte=bounds[0], pk__lte=bounds[1]).order_by("pk"), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if address := _address_without_idle_fields(request) or self._receipt_of_only_one(request):
            return HttpResponseRedirect(address)
        context = {"holds": self._holds_without_activity(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def _receipt_of_only_one(self, request: HttpRequest) -> str | None:
        bounds = search.id_range(request.GET.get("q", ""))
        if bounds is None:
            return None
        found = list(
            Activity.objects.filter(pk__range=bounds).order_by("pk").values_list("pk", flat=True)[:2]
        )
        return reverse("admin:inference_activity_change", args=found) if len(found) == 1 else None

    def _holds_without_activity(self, request: HttpRequest) -> list[Reservation]:
        """Holds of requests whose process died before it wrote their activity: the ledger has them all."""
        bounds = search.id_range(request.GET.get("q", ""))
        if bounds is None or not request.user.has_perm("billing.view_reservation"):
            return []
        return list(Reservation.objects.filter(pk__range=bounds).order_by("pk")[:5])

    @display(description="Ended")
    def ended(self, row: Activity) -> SafeString:
        return timestamp(row.ended_at)

    @display(description="Request")
    def short_id(self, row: Activity) -> SafeString:
        return format_html('<span class="request-id" title="{}">{}</span>', row.pk, row.pk.hex[:8])

    @display(description="Project, key")
    def owner(self, row: Activity) -> SafeString:
        return _two_lines(row.project.name, row.api_key.redacted_value)

    @display(description="Model")
    def model_and_deployment(self, row: Activity) -> SafeString:
        return _two_lines(row.model or NONE, row.deployment)

    @display(description="Status")
    def outcome(self, row: Activity) -> SafeString:
        return _two_lines(badge(row.status), row.code)

    @display(description="Tokens in, out")
    def tokens(self, row: Activity) -> SafeString:
        return _two_lines(_count(row.prompt_tokens), _count(row.completion_tokens))

    @display(description="Cost")
    def cost(self, row: Activity) -> SafeString:
        text = NONE if row.cost_nanousd is None else short_usd(row.cost_nanousd)
        return format_html('<span class="gw-nowrap">{}</span>', text)

    @display(description="First token, total")
    def latency(self, row: Activity) -> SafeString:
        return _two_lines(_milliseconds(row.first_token_ms), _milliseconds(row.total_ms))

    # --- the receipt ---------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            return self._answer_without_activity(request, object_id)
        receipt = receipts.receipt_of(
            row, with_money=_sees_money(request), with_verdicts=request.user.has_perm("policies.view_verdict")
        )
        context = {
            "receipt": receipt,
            "activity": row,
            "badge": badge(row.status),
            "facts": _facts(request, receipt),
            "hold_facts": _hold_facts(receipt.money) if receipt.money else [],
            "price_facts": _price_facts(request, receipt.money) if receipt.money else [],
            "shows_corrections": request.user.has_perm("billing.view_costadjustment"),
            "links_versions": request.user.has_perm("billing.view_priceversion"),
            "list_address": _list_address(request),
        }
        return render_page(self, request, "admin/inference/activity/receipt.html", "Receipt", context)

    def _answer_without_activity(self, request: HttpRequest, object_id: str) -> HttpResponse:
        address = reverse("admin:inference_activity_changelist")
        return HttpResponseRedirect(f"{address}?{urlencode({'q': object_id})}")


def _facts(request: HttpRequest, receipt: receipts.Receipt) -> list[tuple[str, str]]:
    row = receipt.activity
    return [
        ("Organization", _link(request, row.organization)),
        ("Project", _link(request, row.project)),
        ("API key", _link(request, row.api_key)),
        ("Model", row.model or NONE),
        ("Endpoint", row.endpoint),
        ("Answer", "as a stream" if row.is_stream else "as a whole"),
        ("Came", timestamp(row.created_at)),
        ("First token", timestamp(receipt.first_token_at, empty=NONE)),
        ("Ended", timestamp(row.ended_at)),
        ("First token after", _milliseconds(row.first_token_ms)),
        ("Took", _milliseconds(row.total_ms)),
        ("Prompt tokens (cached)", _count_with_part(row.prompt_tokens, row.cached_tokens)),
        ("Completion tokens (reasoning)", _count_with_part(row.completion_tokens, row.reasoning_tokens)),
    ]


def _hold_facts(money: ExplainedCharge) -> list[tuple[str, str]]:
    hold, row = money.hold, money.reservation
    facts = [("Held, exact", f"${hold.amount}")]
    if hold.at_admission:
        facts = [("Held at admission, exact", f"${hold.at_admission}"), ("For at most", hold.bounds)]
        if hold.change:
            facts.append(
                ("Held at the end, exact" if row.resolved_at else "Held now, exact", f"${hold.amount}")
            )
    facts += [
        ("State", row.get_state_display()),
        ("Charged by", row.get_basis_display() or NONE),
        ("Admitted", timestamp(row.admitted_at)),
        ("Sent to a backend", timestamp(row.dispatched_at, empty=NONE)),
    ]
    if money.unknown is not None:
        facts += [
            ("Unknown since", timestamp(money.unknown.since)),
            ("Resolves by itself", timestamp(money.unknown.resolves_at)),
        ]
    elif row.state == Reservation.State.HELD:
        facts += [("Lease until", timestamp(row.lease_expires_at)), ("Deadline", timestamp(row.deadline_at))]
    else:
        facts.append((row.get_state_display(), timestamp(row.resolved_at)))
    return facts


def _price_facts(request: HttpRequest, money: ExplainedCharge) -> list[tuple[str, str]]:
    version = money.version
    if version is None:
        return []
    short_id = format_html('<code title="{}">{}</code>', version.pk, version.pk.hex[:8])
    facts: list[tuple[str, str]] = [
        ("Price version", _link(request, version, short_id)),
        ("Valid from", timestamp(version.valid_from)),
        ("Source", version.source),
    ]
    return [*facts, ("Tier", money.tier)] if money.tier else facts


def _link(request: HttpRequest, row: Any, text: str = "") -> str:
    kind = row._meta
    if not request.user.has_perm(f"{kind.app_label}.view_{kind.model_name}"):
        return text or str(row)
    address = reverse(f"admin:{kind.app_label}_{kind.model_name}_change", args=[row.pk])
    return format_html('<a class="gw-link" href="{}">{}</a>', address, text or row)


def _list_address(request: HttpRequest) -> str:
    """The address of the list, with the filters that the person left there."""
    address, filters = (
        reverse("admin:inference_activity_changelist"),
        request.GET.get("_changelist_filters", ""),
    )
    return f"{address}?{filters}" if filters else address


@cache
def badge(status: int) -> SafeString:
    """A status, in the colour of how bad it is."""
    if status == CLIENT_CLOSED_REQUEST:
        text, kind = f"{status} client left", "default"
    else:
        text = str(status)
        kind = "success" if status < 400 else "warning" if status < 500 else "danger"
    return render_to_string("unfold/helpers/label.html", {"type": kind, "text": text})


def _sees_money(request: HttpRequest) -> bool:
    return bool(request.user.has_perms(["billing.view_reservation", "billing.view_costline"]))


def _address_without_idle_fields(request: HttpRequest) -> str | None:
    """This page's address without fields that are empty or overridden; None where there are none."""
    given = request.GET.copy()
    for name in [name for name, value in given.items() if not value]:
        del given[name]
    if "when" in given and ("from" in given or "to" in given):
        del given["when"]
    return f"{request.path}?{given.urlencode()}" if given != request.GET else None


def _two_lines(first: str, second: str) -> SafeString:
    return format_html('<span class="request-cell">{}<br><small>{}</small></span>', first, second)


def _count(tokens: int | None) -> str:
    return NONE if tokens is None else f"{tokens:,}"


def _count_with_part(tokens: int | None, part: int | None) -> str:
    return NONE if tokens is None else f"{tokens:,} ({part or 0:,})"


def _milliseconds(value: int | None) -> str:
    return NONE if value is None else f"{value:,} ms"
