"""The console's pages for organizations and projects. They call the same services as the API."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway_site.api.errors import Conflict
from gateway_site.console.kit.model_admin import (
    AutocompleteFilter,
    ModelAdmin,
    address_of,
    confirmed_action,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from organization import services
from organization.admin import keys as admin_keys
from organization.audit.trail import Actor
from organization.models import Organization, Project, ProjectKey


def active_keys(project: Project) -> QuerySet[ProjectKey]:
    """The keys that would stop working with the project."""
    return project.api_keys.filter(admin_keys.STATUS_CONDITIONS["active"]())


def archive_confirmation_rows(project: Project, given: dict[str, Any]) -> list[tuple[str, Any]]:
    keys = active_keys(project)
    used = keys.order_by("last_used_at").exclude(last_used_at=None).last()
    return [
        ("Organization", project.organization),
        ("Active keys that stop working", keys.count()),
        ("Last used", timestamp(used.last_used_at if used else None)),
    ]


@admin.register(Organization)
class OrganizationAdmin(ModelAdmin):
    about = "An organization is a customer. It has credit, projects with API keys, and policies."
    first_step = "Add one here or with this command, grant it credit, then add a project with a key."
    first_command = "python manage.py create_organization NAME"
    list_display = ["name", "active_projects", "created"]
    search_fields = ["name", "=id"]
    readonly_fields = ["identifier", "created"]
    ordering = ["name"]
    # What other apps add needs somewhere to stand.
    actions: list[Any] = []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organization]:
        active = Count("projects", filter=Q(projects__archived_at=None))
        found: QuerySet[Organization] = super().get_queryset(request)
        return found.annotate(active_project_count=active)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["name"] if obj is None else ["name", *self.readonly_fields]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # its name is how commands find it

    def save_model(self, request: HttpRequest, obj: Organization, form: Any, change: bool) -> None:
        made, is_new = services.create_organization(name=obj.name, actor=Actor.staff(request.user))
        if not is_new:
            raise Conflict("There is an organization of this name.")
        obj.pk = made.pk

    @display(description="Active projects", ordering="active_project_count")
    def active_projects(self, organization: Any) -> int:
        return int(organization.active_project_count)

    @display(description="Created", ordering="created_at")
    def created(self, organization: Organization) -> SafeString:
        return timestamp(organization.created_at)


@admin.register(Project)
class ProjectAdmin(ModelAdmin):
    about = "Keys, limits and costs belong to a project: an application, a team or an environment."
    first_step = "Add one here or with this command; then it can have keys."
    first_command = "python manage.py create_project ORGANIZATION NAME"
    list_display = ["name", "owner", "state", "keys", "created"]
    list_filter = [("organization", AutocompleteFilter), ("archived_at", admin.EmptyFieldListFilter)]
    list_select_related = ["organization"]
    search_fields = ["name", "=id", "organization__name"]
    readonly_fields = ["identifier", "state", "created", "archived"]
    autocomplete_fields = ["organization"]
    ordering = ["name"]
    actions = ["archive"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        kept = Count("api_keys", filter=Q(api_keys__revoked_at=None))
        found: QuerySet[Project] = super().get_queryset(request)
        return found.annotate(key_count=kept)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["organization", "name"] if obj is None else ["organization", "name", *self.readonly_fields]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        made, is_new = services.create_project(
            organization=obj.organization, name=obj.name, actor=Actor.staff(request.user)
        )
        if not is_new:
            raise Conflict("The organization has an active project of this name.")
        obj.pk = made.pk

    @display(description="Organization", ordering="organization__name")
    def owner(self, project: Project) -> SafeString:
        return format_html(
            '<a class="text-link" href="{}">{}</a>', address_of(project.organization), project.organization
        )

    @display(description="State", label={"active": "success", "archived": "danger"})
    def state(self, project: Project) -> str:
        return "active" if project.is_active else "archived"

    @display(description="Keys", ordering="key_count")
    def keys(self, project: Any) -> int:
        return int(project.key_count)

    @display(description="Created", ordering="created_at")
    def created(self, project: Project) -> SafeString:
        return timestamp(project.created_at)

    @display(description="Archived")
    def archived(self, project: Project) -> SafeString:
        return timestamp(project.archived_at)

    @confirmed_action(
        label="Archive",
        consequence="The keys of an archived project admit no more inference, and it gets no new ones. Its "
        "costs stay readable. This cannot be undone.",
        done="archived",
        icon="archive",
        confirmation_rows=archive_confirmation_rows,
        applies=lambda project: project.is_active,
        is_dangerous=True,
    )
    def archive(self, request: HttpRequest, project: Project) -> None:
        services.archive_project(project=project, actor=Actor.staff(request.user))
