"""The console's page for the versions of models' prices, and the panel of them on the page of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.models import PriceVersion
from billing.prices import versions
from billing.prices.card import PriceCard
from billing.prices.card_text import COUNTS, card_rows
from gateway_site.console.kit.model_admin import Panel, ReadOnlyAdmin, display
from gateway_site.console.kit.timestamps import timestamp
from organization.models import AuditEvent

VIEW_PERMISSION = "billing.view_priceversion"
# As many as fit on the page of a model.
MOST_IN_PANEL = 10
CHECKSUM_CHARACTERS = 8
STATES = {"in force": "success", "scheduled": "info", "replaced": ""}


def card_html(card: PriceCard, *, is_wrapped: bool = True) -> SafeString:
    """Every price of a card with its unit and its tiers, one a line."""
    css = "" if is_wrapped else "whitespace-nowrap"
    return format_html_join("", '<div class="{}">{}: {}</div>', ((css, *row) for row in card_rows(card)))


def checksum_html(version: PriceVersion) -> SafeString:
    return format_html(
        '<span class="mono" title="{}">{}</span>', version.checksum, version.checksum[:CHECKSUM_CHARACTERS]
    )


def read_states(rows: Iterable[PriceVersion]) -> None:
    """Put on each version whether it is in force now, was, or will be, and who added it."""
    rows = list(rows)
    now = timezone.now()
    in_force = versions.in_force({row.model for row in rows}, now)
    events = AuditEvent.objects.filter(
        target_kind="priceversion", target_id__in=[str(row.pk) for row in rows]
    )
    people = dict(events.values_list("target_id", "actor_label"))
    for row in rows:
        is_now = in_force.get(row.model) == row
        state = "in force" if is_now else "scheduled" if row.valid_from > now else "replaced"
        row.__dict__ |= {"state_now": state, "added_by": people.get(str(row.pk), "")}


def price_versions_panel(request: HttpRequest, model_id: str) -> list[Panel]:
    """The panel of a model's latest versions, for whoever may see them."""
    if not request.user.has_perm(VIEW_PERMISSION):
        return []
    rows = list(versions.history(model_id)[:MOST_IN_PANEL])
    read_states(rows)
    address = reverse("admin:billing_priceversion_changelist")
    return [
        Panel(
            title="Price versions",
            headings=["Valid from", "State", "Prices", "Source", "Added by", "Checksum"],
            rows=[
                (
                    timestamp(row.valid_from),
                    row.__dict__["state_now"],
                    # A panel scrolls; prices that break in the middle of a word cannot be read.
                    card_html(row.card, is_wrapped=False),
                    row.source,
                    row.__dict__["added_by"],
                    checksum_html(row),
                )
                for row in rows
            ],
            empty="The model has no price yet.",
            link=(f"{address}?{urlencode({'model__exact': model_id})}", "All versions"),
            anchor="price-versions",
        )
    ]


@admin.register(PriceVersion)
class PriceVersionAdmin(ReadOnlyAdmin):
    """Every version of every model's prices. It is append-only: a price is changed by another version."""

    about = "What models cost, and since when. A request keeps the version that it was admitted under."
    first_step = "Give a model its prices on its page, or with this command."
    first_command = (
        "python manage.py add_model ID --backend NAME --prompt-per-million USD --completion-per-million USD"
    )
    list_display = ["title", "valid", "state", "prices", "source", "added_by", "short_checksum"]
    fields = readonly_fields = [
        "model",
        "valid",
        "state",
        "prices",
        "assumptions",
        "source",
        "added_by",
        "created",
        "checksum",
        "identifier",
    ]
    linked_lookups = ("model__exact",)
    search_fields = ["model", "source"]
    ordering = ["-valid_from", "-created_at"]

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        super().fill_page(request, rows)
        read_states(rows)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            read_states([row])
        return row

    @display(description="Model", ordering="model")
    def title(self, version: PriceVersion) -> str:
        return version.model

    @display(description="Valid from", ordering="valid_from")
    def valid(self, version: PriceVersion) -> SafeString:
        return timestamp(version.valid_from)

    @display(description="State", label=STATES)
    def state(self, version: PriceVersion) -> str:
        return str(version.__dict__["state_now"])

    @display(description="Prices")
    def prices(self, version: PriceVersion) -> SafeString:
        return card_html(version.card)

    @display(description="Holds assume")
    def assumptions(self, version: PriceVersion) -> SafeString:
        card = version.card
        shown = ((name.replace("_", " "), f"{getattr(card, name):,}") for name in COUNTS)
        return format_html_join("", "<div>{}: {}</div>", shown)

    @display(description="Added by")
    def added_by(self, version: PriceVersion) -> str:
        return str(version.__dict__["added_by"])

    @display(description="Added", ordering="created_at")
    def created(self, version: PriceVersion) -> SafeString:
        return timestamp(version.created_at)

    @display(description="Checksum")
    def short_checksum(self, version: PriceVersion) -> SafeString:
        return checksum_html(version)
