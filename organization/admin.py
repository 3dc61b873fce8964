"""The console's pages for organizations, projects and keys: doors to the same services as the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from gateway_site.api.console import (
    CheckboxSelectMultiple,
    IntegerInput,
    ModelAdmin,
    ReadOnlyAdmin,
    confirmed,
    display,
    show_once,
)
from organization import services
from organization.audit import Actor
from organization.models import AdminKey, AuditEvent, KeyStatus, Organization, Project, ProjectKey

STATUS_COLOURS = {
    KeyStatus.ACTIVE: "success",
    KeyStatus.SUSPENDED: "warning",
    KeyStatus.EXPIRED: "warning",
    KeyStatus.REVOKED: "danger",
}


@admin.register(Organization)
class OrganizationAdmin(ModelAdmin):
    list_display = ["name", "active_projects", "created_at"]
    search_fields = ["name", "id"]
    readonly_fields = ["id", "created_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organization]:
        active = Count("projects", filter=Q(projects__archived_at=None))
        return Organization.objects.annotate(active_project_count=active)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # its name is how commands find it

    def save_model(self, request: HttpRequest, obj: Organization, form: Any, change: bool) -> None:
        made, _ = services.create_organization(name=obj.name, actor=Actor.staff(request.user))
        obj.pk = made.pk

    @display(description="Active projects", ordering="active_project_count")
    def active_projects(self, organization: Any) -> int:
        return int(organization.active_project_count)


@admin.register(Project)
class ProjectAdmin(ModelAdmin):
    list_display = ["name", "organization", "state", "created_at"]
    list_filter = ["organization", ("archived_at", admin.EmptyFieldListFilter)]
    list_select_related = ["organization"]
    search_fields = ["name", "id"]
    readonly_fields = ["id", "created_at", "archived_at"]
    autocomplete_fields = ["organization"]
    actions = ["archive"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        made, _ = services.create_project(
            organization=obj.organization, name=obj.name, actor=Actor.staff(request.user)
        )
        obj.pk = made.pk

    @display(description="State", label={"active": "success", "archived": "danger"})
    def state(self, project: Project) -> str:
        return "active" if project.is_active else "archived"

    @confirmed(
        label="Archive",
        consequence="The keys of these projects will admit no more inference. This cannot be undone.",
    )
    def archive(self, request: HttpRequest, project: Project) -> None:
        services.archive_project(project=project, actor=Actor.staff(request.user))


class KeyForm(forms.ModelForm):
    """What a person decides about a new key; the value is made for them."""

    permissions = forms.MultipleChoiceField(
        required=False, widget=CheckboxSelectMultiple, help_text="None chosen: every one of its kind."
    )
    expires_in_days = forms.IntegerField(
        required=False, min_value=1, max_value=36_500, widget=IntegerInput, help_text="Empty: never."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "permissions" in self.fields:
            available = self._meta.model.AVAILABLE_PERMISSIONS
            self.fields["permissions"].choices = [(each, each) for each in available]  # type: ignore[attr-defined]


class KeyAdmin(ModelAdmin):
    """Both kinds of key. A value is shown once, on the page that follows its making."""

    form = KeyForm
    owner_field: ClassVar[str]
    create: ClassVar[Callable[..., services.NewKey[Any]]]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "redacted_value", "id"]
    readonly_fields = [
        "id",
        "redacted_value",
        "created_at",
        "last_used_at",
        "expires_at",
        "suspended_at",
        "revoked_at",
    ]
    actions = ["rotate", "suspend", "resume", "revoke"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return [self.owner_field, "name", "permissions", "expires_in_days"]
        return [self.owner_field, "name", "permissions", *self.readonly_fields]

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
        return show_once(self, request, title=f"Key {obj.name} was created", secret=request.new_value)

    @display(description="Status", label=STATUS_COLOURS)
    def state(self, key: Any) -> str:
        return str(key.status)

    @confirmed(
        label="Rotate",
        consequence="The key gets a new value, shown once. Its old value stops working at once.",
        one_at_a_time=True,
    )
    def rotate(self, request: HttpRequest, key: Any) -> HttpResponse:
        made = services.rotate_key(key=key, actor=Actor.staff(request.user))
        return show_once(self, request, title=f"Key {key.name} was rotated", secret=made.value)

    @confirmed(label="Suspend", consequence="These keys stop working until they are resumed.")
    def suspend(self, request: HttpRequest, key: Any) -> None:
        services.suspend_key(key=key, actor=Actor.staff(request.user))

    @confirmed(label="Resume", consequence="These keys work again at once.")
    def resume(self, request: HttpRequest, key: Any) -> None:
        services.resume_key(key=key, actor=Actor.staff(request.user))

    @confirmed(label="Revoke", consequence="These keys stop working for ever. This cannot be undone.")
    def revoke(self, request: HttpRequest, key: Any) -> None:
        services.revoke_key(key=key, actor=Actor.staff(request.user))


@admin.register(ProjectKey)
class ProjectKeyAdmin(KeyAdmin):
    owner_field = "project"
    list_display = ["name", "redacted_value", "project", "state", "last_used_at", "expires_at"]
    list_select_related = ["project"]
    autocomplete_fields = ["project"]
    create = staticmethod(services.create_project_key)


@admin.register(AdminKey)
class AdminKeyAdmin(KeyAdmin):
    owner_field = "organization"
    list_display = ["name", "redacted_value", "organization", "state", "last_used_at", "expires_at"]
    list_select_related = ["organization"]
    autocomplete_fields = ["organization"]
    create = staticmethod(services.create_admin_key)


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """Who did what."""

    list_display = ["occurred_at", "action", "target_kind", "target_id", "actor_label", "organization"]
    list_filter = ["action", "actor_kind", "organization"]
    list_select_related = ["organization"]
    search_fields = ["target_id", "actor_label", "request_id"]
    ordering = ["-id"]
