"""The console's pages for both kinds of key. A value is shown once, on the page that follows its making."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway_site.console.kit.model_admin import (
    ActionForm,
    AutocompleteFilter,
    CheckboxSelectMultiple,
    IntegerInput,
    ModelAdmin,
    Selection,
    address_of,
    confirmed_action,
    display,
    show_secret_once,
)
from gateway_site.console.kit.timestamps import timestamp
from organization import services
from organization.audit.trail import Actor
from organization.models import AdminKey, KeyStatus, ProjectKey

STATUS_COLOURS = {
    KeyStatus.ACTIVE: "success",
    KeyStatus.SUSPENDED: "warning",
    KeyStatus.EXPIRED: "warning",
    KeyStatus.REVOKED: "danger",
}


def _expired() -> Q:
    return Q(expires_at__isnull=False, expires_at__lte=timezone.now())


# As `ApiKey.status_at` decides it.
STATUS_CONDITIONS: dict[str, Callable[[], Q]] = {
    "active": lambda: Q(revoked_at=None, suspended_at=None) & ~_expired(),
    "suspended": lambda: Q(revoked_at=None, suspended_at__isnull=False) & ~_expired(),
    "expired": lambda: Q(revoked_at=None) & _expired(),
    "revoked": lambda: Q(revoked_at__isnull=False),
}


class KeyStatusFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, page: Any) -> list[tuple[str, str]]:
        return [(name, name.capitalize()) for name in STATUS_CONDITIONS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        condition = STATUS_CONDITIONS.get(self.value() or "")
        return queryset.filter(condition()) if condition else queryset


class KeyForm(forms.ModelForm):
    """The form of a new key. Its value is generated."""

    permissions = forms.MultipleChoiceField(
        required=False, widget=CheckboxSelectMultiple, help_text="None chosen: all permissions."
    )
    expires_in_days = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=36_500,
        widget=IntegerInput,
        help_text="Empty: the key never expires.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "permissions" in self.fields:
            available = self._meta.model.AVAILABLE_PERMISSIONS
            self.fields["permissions"].choices = [(each, each) for each in available]  # type: ignore[attr-defined]


class RotateForm(ActionForm):
    """Carries the redacted value that the person saw, so that no newer one is rotated."""

    seen_value = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen_value"].initial = self.rows[0].redacted_value


def key_confirmation_rows(key: Any, given: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a confirmation says of a key: which one it is, and whether anybody would miss it."""
    rows: list[tuple[str, Any]] = [
        ("Value", format_html('<span class="mono">{}</span>', key.redacted_value)),
        ("Owner", _owner_of(key)),
        ("Status", str(key.status)),
        ("Last used", timestamp(key.last_used_at)),
    ]
    if _is_archived(key):
        rows.append(("Warning", "The project is archived: its keys admit nothing, whatever their status."))
    return rows


def _is_archived(key: Any) -> bool:
    return isinstance(key, ProjectKey) and not key.project.is_active


def _owner_of(key: Any) -> str:
    if isinstance(key, ProjectKey):
        return f"{key.project} of {key.project.organization}"
    return str(key.organization)


class KeyAdmin(ModelAdmin):
    """What the pages of project keys and of admin keys share."""

    form = KeyForm
    owner_field: ClassVar[str]
    create: ClassVar[Callable[..., services.NewKey[Any]]]
    search_fields = ["name", "redacted_value", "=id"]
    readonly_fields = [
        "value",
        "state",
        "identifier",
        "created",
        "last_used",
        "expires",
        "suspended",
        "revoked",
    ]
    ordering = ["-created_at"]
    actions = ["rotate", "suspend", "resume", "revoke"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return [self.owner_field, "name", "permissions", "expires_in_days"]
        return ["name", self.owner_field, *self.readonly_fields, "allowed"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*self.readonly_fields, "allowed"]

    def options_of(self, request: HttpRequest, form: Any) -> dict[str, Any]:
        days = form.cleaned_data["expires_in_days"]
        return {
            "name": form.cleaned_data["name"],
            "permissions": form.cleaned_data["permissions"] or None,
            "expires_at": timezone.now() + timedelta(days=days) if days else None,
            "actor": Actor.staff(request.user),
        }

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        owner = {self.owner_field: form.cleaned_data[self.owner_field]}
        made = type(self).create(**owner, **self.options_of(request, form))
        obj.pk = made.key.pk
        request.new_value = made.value

    def response_add(self, request: Any, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return show_secret_once(self, request, title=f"Key {obj.name} was created", secret=request.new_value)

    # --- columns -------------------------------------------------------------------------------------

    @display(description="Value")
    def value(self, key: Any) -> SafeString:
        return format_html('<span class="mono">{}</span>', key.redacted_value)

    @display(description="Status", label=STATUS_COLOURS)
    def state(self, key: Any) -> str:
        return str(key.status)

    @display(description="Permissions")
    def allowed(self, key: Any) -> str:
        return ", ".join(key.permissions)

    @display(description="Created", ordering="created_at")
    def created(self, key: Any) -> SafeString:
        return timestamp(key.created_at)

    @display(description="Last used", ordering="last_used_at")
    def last_used(self, key: Any) -> SafeString:
        return timestamp(key.last_used_at)

    @display(description="Expires", ordering="expires_at")
    def expires(self, key: Any) -> SafeString:
        return timestamp(key.expires_at)

    @display(description="Suspended")
    def suspended(self, key: Any) -> SafeString:
        return timestamp(key.suspended_at, empty="no")

    @display(description="Revoked")
    def revoked(self, key: Any) -> SafeString:
        return timestamp(key.revoked_at, empty="no")

    # --- actions -------------------------------------------------------------------------------------

    @confirmed_action(
        label="Rotate",
        consequence="The key gets a new value, which is shown once. Its old value stops working at once.",
        icon="autorenew",
        confirmation_rows=key_confirmation_rows,
        applies=lambda key: key.revoked_at is None,
        form=RotateForm,
        selection=Selection.ONE,
    )
    def rotate(self, request: HttpRequest, key: Any, given: dict[str, Any]) -> HttpResponse:
        made = services.rotate_key(key=key, actor=Actor.staff(request.user), seen_value=given["seen_value"])
        return show_secret_once(self, request, title=f"Key {key.name} was rotated", secret=made.value)

    @confirmed_action(
        label="Suspend",
        consequence="A suspended key stops working at once, until it is resumed.",
        done="suspended",
        icon="pause",
        confirmation_rows=key_confirmation_rows,
        applies=lambda key: key.status is KeyStatus.ACTIVE,
    )
    def suspend(self, request: HttpRequest, key: Any) -> None:
        services.suspend_key(key=key, actor=Actor.staff(request.user))

    @confirmed_action(
        label="Resume",
        consequence="A resumed key works again at once.",
        done="resumed",
        icon="play_arrow",
        confirmation_rows=key_confirmation_rows,
        applies=lambda key: key.status is KeyStatus.SUSPENDED,
    )
    def resume(self, request: HttpRequest, key: Any) -> None:
        services.resume_key(key=key, actor=Actor.staff(request.user))

    @confirmed_action(
        label="Revoke",
        consequence="A revoked key stops working at once and for ever. This cannot be undone.",
        done="revoked",
        icon="block",
        confirmation_rows=key_confirmation_rows,
        applies=lambda key: key.revoked_at is None,
        is_dangerous=True,
    )
    def revoke(self, request: HttpRequest, key: Any) -> None:
        services.revoke_key(key=key, actor=Actor.staff(request.user))


@admin.register(ProjectKey)
class ProjectKeyAdmin(KeyAdmin):
    about = (
        "An API key lets an application of a project use models. Its value is shown once, when it is made."
    )
    first_step = "Add a project, then a key for it, here or with this command."
    first_command = "python manage.py create_project_key PROJECT NAME"
    owner_field = "project"
    list_display = ["name", "value", "owner", "state", "last_used", "expires"]
    list_filter = [KeyStatusFilter, ("project", AutocompleteFilter)]
    list_select_related = ["project__organization"]
    autocomplete_fields = ["project"]
    create = staticmethod(services.create_project_key)

    @display(description="Project", ordering="project__name")
    def owner(self, key: ProjectKey) -> SafeString:
        return format_html(
            '<a class="text-link" href="{}">{}</a><span class="under">{}{}</span>',
            address_of(key.project),
            key.project,
            key.project.organization,
            ", archived" if _is_archived(key) else "",
        )


@admin.register(AdminKey)
class AdminKeyAdmin(KeyAdmin):
    about = "An admin key lets a program manage an organization: its keys, policies and cost reports."
    first_step = "Add one here or with this command."
    first_command = "python manage.py create_admin_key ORGANIZATION NAME"
    owner_field = "organization"
    list_display = ["name", "value", "owner", "state", "last_used", "expires"]
    list_filter = [KeyStatusFilter, ("organization", AutocompleteFilter)]
    list_select_related = ["organization"]
    autocomplete_fields = ["organization"]
    create = staticmethod(services.create_admin_key)

    @display(description="Organization", ordering="organization__name")
    def owner(self, key: AdminKey) -> SafeString:
        return format_html(
            '<a class="text-link" href="{}">{}</a>', address_of(key.organization), key.organization
        )
