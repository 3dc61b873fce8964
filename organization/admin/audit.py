"""The console's page of the audit trail: who did what, and when."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway_site.console.kit.model_admin import (
    AutocompleteFilter,
    RangeDateTimeFilter,
    ReadOnlyAdmin,
    ShortPaginator,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.models import AuditEvent

# The entry of an event's details that holds the values before the change.
BEFORE = "before"


def changes_html(details: dict[str, Any]) -> SafeString:
    """The details of an event as lines: a name, the value before where that is known, and the value now."""
    before = details.get(BEFORE)
    earlier = before if isinstance(before, dict) else {}
    lines = [
        (name.replace("_", " "), _change(name, value, earlier))
        for name, value in details.items()
        if name != BEFORE
    ]
    if not lines:
        return format_html("<span>{}</span>", "no details")
    return format_html_join("", "<div>{}: {}</div>", lines)


def _change(name: str, value: Any, earlier: dict[str, Any]) -> SafeString:
    if name not in earlier:
        return format_html('<span class="change-new">{}</span>', _text(value))
    return format_html(
        '<span class="change-old">{}</span> → <span class="change-new">{}</span>',
        _text(earlier[name]),
        _text(value),
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, "") else str(value)


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """The audit trail's list, and the page of one event."""

    about = "Everything that people, admin keys and commands change is recorded here and can never be edited."
    first_step = "There is nothing to do: the first change makes the first entry."
    counted = ("entry", "entries")
    list_display = ["when", "action", "target", "actor", "organization", "request_seen"]
    list_filter = ["actor_kind", ("organization", AutocompleteFilter), ("occurred_at", RangeDateTimeFilter)]
    list_select_related = ["organization"]
    search_fields = ["^action", "target_id", "actor_label", "=request_id"]
    search_help_text = "An action such as key.revoke, an id, a person, a request id."
    paginator = ShortPaginator
    ordering = ["-id"]
    fields = ["when", "action", "target", "actor", "actor_kind", "organization", "request_seen", "changes"]
    readonly_fields = ["when", "target", "actor", "request_seen", "changes"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEvent]:
        """Entries about people, their log-ins and addresses among them, are for those who may see people."""
        found: QuerySet[AuditEvent] = super().get_queryset(request)
        return found if request.user.has_perm("auth.view_user") else found.exclude(target_kind="user")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        event = super().get_object(request, object_id, from_field)
        self._name_targets(request, [event] if event else [])
        return event

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        self._name_targets(request, rows)
        for event in rows:
            event.is_in_list = True
        super().fill_page(request, rows)

    def _name_targets(self, request: HttpRequest, rows: list[Any]) -> None:
        """Name what the events are about, with a query for each kind of thing and not for each event."""
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for event in rows:
            ids[event.target_kind].add(event.target_id)
        models = self._models()
        for kind, wanted in ids.items():
            if kind not in models:
                continue
            page: Any = self.admin_site._registry[models[kind]]
            along = page.list_select_related
            found = models[kind]._default_manager.filter(pk__in=wanted)
            found = found.select_related(*along) if isinstance(along, list) else found
            names = {str(each.pk): page.name_of(each) for each in found}
            is_open = page.has_view_permission(request)
            for event in rows:
                if event.target_kind == kind:
                    event.found_name = names.get(event.target_id)
                    event.has_link = is_open and event.found_name is not None

    def _models(self) -> dict[str, type[Model]]:
        return {model._meta.model_name or "": model for model in self.admin_site._registry}

    @display(description="Time", ordering="occurred_at")
    def when(self, event: AuditEvent) -> SafeString:
        return timestamp(event.occurred_at)

    @display(description="Target")
    def target(self, event: Any) -> SafeString:
        model = self._models().get(event.target_kind)
        words = getattr(event, "found_name", None) or event.target_id
        kind = model._meta.verbose_name if model else event.target_kind
        if model is None or not event.has_link:
            # It is gone, or not for this person to see.
            return format_html('{}<span class="under">{}</span>', words, kind)
        address = reverse(
            f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[quote(event.target_id)]
        )
        return format_html(
            '<a class="text-link" href="{}">{}</a><span class="under">{}</span>',
            address,
            words,
            kind,
        )

    @display(description="Actor", ordering="actor_label")
    def actor(self, event: AuditEvent) -> SafeString:
        return format_html(
            '{}<span class="under">{}</span>', event.actor_label, event.get_actor_kind_display()
        )

    @display(description="Request id")
    def request_seen(self, event: AuditEvent) -> SafeString:
        # On its own page whole, in the list as much as tells it from others.
        shown = event.request_id[:8] if hasattr(event, "is_in_list") else event.request_id
        return format_html('<span class="mono" title="{}">{}</span>', event.request_id, shown)

    @display(description="What changed")
    def changes(self, event: AuditEvent) -> SafeString:
        return changes_html(event.details)
