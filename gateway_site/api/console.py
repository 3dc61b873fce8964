"""What the admin pages of every app are built from. The only module that imports the theme."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin as ThemedModelAdmin
from unfold.admin import TabularInline as ThemedTabularInline
from unfold.contrib.filters.admin import RangeDateTimeFilter as RangeDateTimeFilter
from unfold.decorators import display as display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget as CheckboxSelectMultiple
from unfold.widgets import UnfoldAdminIntegerFieldWidget as IntegerInput
from unfold.widgets import UnfoldAdminPasswordWidget as PasswordInput
from unfold.widgets import UnfoldAdminTextInputWidget as TextInput

from gateway_site.api.errors import ApiError

__all__ = [
    "CheckboxSelectMultiple",
    "IntegerInput",
    "PasswordInput",
    "RangeDateTimeFilter",
    "TextInput",
    "display",
]


class ShortPaginator(Paginator):
    """Counts no further than anyone will page: COUNT(*) over ten million rows takes seconds."""

    FURTHEST = 10_000

    @cached_property
    def count(self) -> int:
        found: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return found[: self.FURTHEST].count()


class ModelAdmin(ThemedModelAdmin):
    """A page that people may write on, where its fields allow."""

    list_filter_submit = True
    show_full_result_count = False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Money, keys and their trail hang below nearly everything; what ends is archived or revoked.
        return False

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A service's refusal is a message on the form, as a form's own is."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ApiError as error:
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this person may use the page's actions, though its fields be read-only."""
        options = self.opts
        return request.user.has_perm(f"{options.app_label}.change_{options.model_name}")


class ReadOnlyAdmin(ModelAdmin):
    """A window, not a pen."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class TabularInline(ThemedTabularInline):
    extra = 0
    can_delete = False


RowAction = Callable[[Any, HttpRequest, Any], HttpResponse | None]


def confirmed(*, label: str, consequence: str, one_at_a_time: bool = False) -> Callable[[RowAction], Any]:
    """
    An admin action that is carried out for each chosen row, after a page that says what will happen.

    It is a POST both times, so it carries the CSRF token; a link can never change anything.
    """

    def decorate(perform: RowAction) -> Any:
        @admin.action(description=label, permissions=["operate"])
        @wraps(perform)
        def action(page: ModelAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
            rows = list(queryset)
            if one_at_a_time and len(rows) != 1:
                page.message_user(request, f"Choose one row to {label.lower()}.", messages.ERROR)
                return None
            if request.POST.get("confirmed") != "yes":
                return _ask(page, request, rows, label, consequence)
            for row in rows:
                try:
                    answer = perform(page, request, row)
                except ApiError as error:
                    page.message_user(request, f"{row}: {error.message}", messages.ERROR)
                    continue
                if answer is not None:
                    return answer
                page.message_user(request, f"{row}: {label.lower()} done.", messages.SUCCESS)
            return None

        return action

    return decorate


def show_once(page: ModelAdmin, request: HttpRequest, *, title: str, secret: str) -> HttpResponse:
    """A page with a secret that will not be shown again."""
    response = _page(page, request, "admin/secret_once.html", title, {"secret": secret})
    add_never_cache_headers(response)
    return response


def _ask(
    page: ModelAdmin, request: HttpRequest, rows: list[Any], label: str, consequence: str
) -> HttpResponse:
    context = {
        "rows": rows,
        "consequence": consequence,
        "label": label,
        "action_name": request.POST["action"],
        "checkbox_name": ACTION_CHECKBOX_NAME,
    }
    return _page(page, request, "admin/confirm_action.html", label, context)


def _page(
    page: ModelAdmin, request: HttpRequest, template: str, title: str, context: dict[str, Any]
) -> HttpResponse:
    everywhere = page.admin_site.each_context(request)
    return TemplateResponse(request, template, {**everywhere, "title": title, "opts": page.opts, **context})
