"""The console's pages for its users and their roles."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from gateway_site.console import roles, users
from gateway_site.console.kit.model_admin import (
    ActionForm,
    Confirmation,
    ModelAdmin,
    Panel,
    ReadOnlyAdmin,
    Select,
    Selection,
    TextInput,
    confirmed_action,
    display,
    show_secret_once,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor

admin.site.unregister(User)
admin.site.unregister(Group)

ROLE_COLOURS = {
    users.SUPERUSER: "danger",
    roles.OWNER: "primary",
    roles.OPERATOR: "info",
    roles.BILLING: "info",
    roles.READER: "",
}


WEAKEST_FIRST = [roles.READER, roles.BILLING, roles.OPERATOR, roles.OWNER, users.SUPERUSER]


def role_choices(manager: Any) -> list[tuple[str, str]]:
    """The roles that a person can give, the weakest first: that is what a hasty click gives."""
    return [
        (role, f"{role}: {roles.ROLES.get(role, 'Everything, the other superusers included.')}")
        for role in sorted(users.roles_offered_by(manager), key=WEAKEST_FIRST.index)
    ]


class NewUserForm(forms.ModelForm):
    """The form of a new user: a name and a role. The password is generated."""

    manager: Any = None
    username = forms.CharField(max_length=150, widget=TextInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(widget=Select)

    class Meta:
        model = User
        fields: list[str] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "role" in self.fields:
            self.fields["role"].choices = role_choices(self.manager)  # type: ignore[attr-defined]

    def clean_username(self) -> str:
        username: str = self.cleaned_data["username"]
        if User.objects.filter(username=User.normalize_username(username)).exists():
            raise forms.ValidationError("There is a user of this name.")
        return username


class RoleForm(ActionForm):
    role = forms.ChoiceField(widget=Select)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].choices = role_choices(self.request.user)  # type: ignore[attr-defined]


def user_confirmation_rows(user: User, given: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("Current role", users.role_of(user) or "none"),
        ("Last login", timestamp(user.last_login)),
    ]
    if "role" in given:
        rows.append(("New role", given["role"]))
    return rows


@admin.register(User)
class UserAdmin(ModelAdmin):
    about = "The people who use this console."
    first_step = "Add someone here or with this command, which prints their first password once."
    first_command = "python manage.py create_console_user NAME --role operator"
    form = NewUserForm
    list_display = ["username", "role", "state", "last_seen", "joined"]
    list_filter = ["groups", "is_active"]
    search_fields = ["username", "email"]
    ordering = ["username"]
    fields = ["username", "role", "state", "last_seen", "joined"]
    readonly_fields = ["state", "last_seen", "joined"]
    actions = ["change_role", "reset_password", "deactivate", "reactivate"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        found: QuerySet[User] = super().get_queryset(request)
        return found.prefetch_related("groups")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # by its actions alone

    def offers(self, request: HttpRequest, row: User) -> bool:
        return users.may_manage(request.user, row)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["username", "role"] if obj is None else list(self.fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.readonly_fields) if obj is None else list(self.fields)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"manager": request.user})

    def save_model(self, request: Any, obj: User, form: Any, change: bool) -> None:
        created = users.create_user(
            username=form.cleaned_data["username"],
            role=form.cleaned_data["role"],
            actor=Actor.staff(request.user),
            manager=request.user,
        )
        obj.pk, obj.username = created.user.pk, created.user.username
        request.new_password = created.password

    def response_add(self, request: Any, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        title = f"{obj.username} can log in"
        return show_secret_once(self, request, title=title, secret=request.new_password, what="password")

    # --- columns -------------------------------------------------------------------------------------

    @display(description="Role", label=ROLE_COLOURS)
    def role(self, user: User) -> str:
        return users.role_of(user)

    @display(description="State", label={"active": "success", "deactivated": "danger"})
    def state(self, user: User) -> str:
        return "active" if user.is_active else "deactivated"

    @display(description="Last login", ordering="last_login")
    def last_seen(self, user: User) -> SafeString:
        return timestamp(user.last_login)

    @display(description="Created", ordering="date_joined")
    def joined(self, user: User) -> SafeString:
        return timestamp(user.date_joined)

    # --- actions -------------------------------------------------------------------------------------

    @confirmed_action(
        label="Change role",
        consequence="From their next click on, the person may do what the new role allows, and no more.",
        icon="manage_accounts",
        confirmation_rows=user_confirmation_rows,
        form=RoleForm,
        confirmation=Confirmation.REVIEW,
        selection=Selection.ONE,
    )
    def change_role(self, request: HttpRequest, user: User, given: dict[str, Any]) -> str:
        users.change_role(
            user=user, role=given["role"], actor=Actor.staff(request.user), manager=request.user
        )
        return f"now {given['role']}"

    @confirmed_action(
        label="Reset password",
        consequence="The person gets a new password, which is shown to you once. The old one stops working "
        "and they are logged out everywhere.",
        icon="lock_reset",
        confirmation_rows=user_confirmation_rows,
        selection=Selection.ONE,
    )
    def reset_password(self, request: HttpRequest, user: User) -> HttpResponse:
        changed = users.reset_password(user=user, actor=Actor.staff(request.user), manager=request.user)
        title = f"{user.username} has a new password"
        return show_secret_once(self, request, title=title, secret=changed.password or "", what="password")

    @confirmed_action(
        label="Deactivate",
        consequence="The person is logged out and cannot log in until they are reactivated. What they did "
        "stays in the audit trail.",
        done="deactivated",
        icon="person_off",
        confirmation_rows=user_confirmation_rows,
        applies=lambda user: user.is_active,
        is_dangerous=True,
    )
    def deactivate(self, request: HttpRequest, user: User) -> None:
        users.deactivate_user(user=user, actor=Actor.staff(request.user), manager=request.user)

    @confirmed_action(
        label="Reactivate",
        consequence="The person can log in again, with the password they had.",
        done="reactivated",
        icon="person_check",
        confirmation_rows=user_confirmation_rows,
        applies=lambda user: not user.is_active,
    )
    def reactivate(self, request: HttpRequest, user: User) -> None:
        users.reactivate_user(user=user, actor=Actor.staff(request.user), manager=request.user)


def _list_title(model: Any) -> str:
    """What the console calls the list of a model; empty where the model is no more."""
    page: Any = admin.site._registry.get(model)
    return str(page.heading) if page else capfirst(str(model._meta.verbose_name_plural)) if model else ""


@admin.register(Group)
class RoleAdmin(ReadOnlyAdmin):
    """What each role may do. The table is in the code; a migration brings it here."""

    about = "The roles that people of this console can have."
    first_step = "They come with the database's migrations."
    first_command = "python manage.py migrate"
    heading = "Roles"
    counted = ("role", "roles")
    list_display = ["name", "meaning", "people"]
    ordering = ["name"]
    fields = ["name", "meaning", "people"]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        found: QuerySet[Group] = super().get_queryset(request)
        return found.annotate(person_count=Count("user"))

    def panels_of(self, request: HttpRequest, row: Group) -> list[Panel]:
        allowed: defaultdict[str, list[str]] = defaultdict(list)
        for each in row.permissions.select_related("content_type").order_by("codename"):
            kind = each.content_type
            verb = each.codename.removesuffix(f"_{kind.model}").replace("_", " ")
            allowed[_list_title(kind.model_class()) or kind.model].append(verb)
        rows = [[model, ", ".join(verbs)] for model, verbs in sorted(allowed.items())]
        return [Panel("Permissions", ["Page", "Allowed"], rows, empty="Nothing.")]

    @display(description="Description")
    def meaning(self, group: Group) -> str:
        return roles.ROLES.get(group.name, "")

    @display(description="Users", ordering="person_count")
    def people(self, group: Any) -> int:
        return int(group.person_count)
