"""ModelAdmin, from which the admin pages of every app derive. The only module that imports the theme."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.admin import ModelAdmin as ThemedModelAdmin
from unfold.admin import TabularInline as ThemedTabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter as AutocompleteFilter
from unfold.contrib.filters.admin import RangeDateTimeFilter as ThemedRangeDateTimeFilter
from unfold.decorators import display as display
from unfold.forms import AuthenticationForm as AuthenticationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget as CheckboxSelectMultiple
from unfold.widgets import UnfoldAdminIntegerFieldWidget as IntegerInput
from unfold.widgets import UnfoldAdminPasswordWidget as PasswordInput
from unfold.widgets import UnfoldAdminRadioSelectWidget as RadioSelect
from unfold.widgets import UnfoldAdminSelectWidget as Select
from unfold.widgets import UnfoldAdminTextareaWidget as Textarea
from unfold.widgets import UnfoldAdminTextInputWidget as TextInput
from unfold.widgets import UnfoldBooleanWidget as Checkbox

from gateway_site.api.errors import ApiError
from gateway_site.console.kit.actions import (
    ActionForm,
    Confirmation,
    Selection,
    actions_of,
    address_of,
    buttons_for,
    confirmed_action,
    render_page,
    respond_to_row_action,
    set_heading,
    show_secret_once,
)
from gateway_site.console.kit.forms import OptimisticLockForm, with_refusal
from gateway_site.console.kit.list_lookups import (
    MOST_SEARCH_CHARACTERS,
    MOST_SEARCH_WORDS,
    is_searchable,
    parameters_of,
)
from gateway_site.console.kit.page_extensions import (
    PageExtension,
    Panel,
    extend_pages,
    extension_columns,
    extensions_of,
    fill_cells,
)

__all__ = [
    "ActionForm",
    "AuthenticationForm",
    "AutocompleteFilter",
    "Checkbox",
    "CheckboxSelectMultiple",
    "Confirmation",
    "IntegerInput",
    "OptimisticLockForm",
    "PageExtension",
    "Panel",
    "PasswordInput",
    "RadioSelect",
    "RangeDateTimeFilter",
    "Select",
    "Selection",
    "TextInput",
    "Textarea",
    "address_of",
    "confirmed_action",
    "display",
    "extend_pages",
    "render_page",
    "show_secret_once",
]


class ShortPaginator(Paginator):
    """Counts no further than anyone will page: COUNT(*) over ten million rows takes seconds."""

    FURTHEST = 10_000

    @cached_property
    def count(self) -> int:
        found: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return found[: self.FURTHEST].count()


class RangeDateTimeFilter(ThemedRangeDateTimeFilter):
    """A filter between two times, each typed as a date and a time."""

    @staticmethod
    def parameters_for(field_path: str) -> list[str]:
        return [f"{field_path}_{end}_{part}" for end in ("from", "to") for part in (0, 1)]


class ModelAdmin(ThemedModelAdmin):
    """A page that people may write on, where its fields allow."""

    list_filter_submit = True
    list_disable_select_all = True
    list_per_page = 50
    show_full_result_count = False
    change_form_outer_before_template = "admin/action_bar.html"
    change_form_outer_after_template = "admin/panels.html"
    # What an empty list says: what it is for, what to do next, and the command that does it.
    about: ClassVar[str] = ""
    first_step: ClassVar[str] = ""
    first_command: ClassVar[str] = ""
    # What one row and several are called, where the list is called otherwise.
    counted: ClassVar[tuple[str, str] | None] = None
    nothing_yet: ClassVar[str] = ""
    # They would count the whole table, once for each choice of a filter.
    show_facets = admin.ShowFacets.NEVER
    # Lookups that links of the console use, beside those of the list's filters.
    linked_lookups: ClassVar[tuple[str, ...]] = ()

    @property
    def heading(self) -> str:
        """What the list is called, as in the sidebar."""
        return capfirst(str(self.opts.verbose_name_plural))

    @property
    def words(self) -> tuple[str, str]:
        """What one row of the list is called, and several."""
        return self.counted or (str(self.opts.verbose_name), str(self.opts.verbose_name_plural))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Money, keys and their trail hang below nearly everything; what ends is archived or revoked.
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this person may use the page's actions, though its fields be read-only."""
        options = self.opts
        return request.user.has_perm(f"{options.app_label}.change_{options.model_name}")

    def name_of(self, row: Any) -> str:
        """What a row is called in headings, messages and confirmations."""
        return str(row)

    @display(description="ID")
    def identifier(self, row: Any) -> SafeString:
        return format_html('<span class="mono">{}</span>', row.pk)

    # --- actions -------------------------------------------------------------------------------------

    def offers(self, request: HttpRequest, row: Any) -> bool:
        """Whether buttons for this row are worth showing to this person; services decide in any case."""
        return True

    def all_actions(self) -> list[Any]:
        """Every action of this page, those that other apps add included."""
        added = [action for extension in extensions_of(self.model) for action in extension.actions]
        return [*(self.actions or ()), *added]

    def _get_base_actions(self) -> list[Any]:
        own = super()._get_base_actions()
        added = [action for extension in extensions_of(self.model) for action in extension.actions]
        return [*own, *(self.get_action(action) for action in added)]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)
        declared = actions_of(self)
        return {
            name: action
            for name, action in found.items()
            if name not in declared or declared[name].is_allowed(self, request)
        }

    def get_urls(self) -> list[Any]:
        options = self.opts
        name = f"{options.app_label}_{options.model_name}_do"
        view = self.admin_site.admin_view(self.action_view)
        return [path("<path:object_id>/do/<slug:action_name>/", view, name=name), *super().get_urls()]

    def action_view(self, request: HttpRequest, object_id: str, action_name: str) -> HttpResponse:
        """The page of one action for one row."""
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return respond_to_row_action(self, request, row, action_name)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        raise Http404  # Django's own history knows nothing of what services did; the audit trail does

    # --- lists ---------------------------------------------------------------------------------------

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """
        Whether an address may narrow the list by this lookup: only as the list's filters and links do.

        Django allows every lookup on a model's own columns. That shows people columns that no page shows, and
        a regular expression that somebody chose can keep the interpreter busy for as long as they like.
        """
        declared = self.get_list_filter(request) if request is not None else self.list_filter
        return lookup in self.linked_lookups or lookup in parameters_of(declared, self.model)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if is_searchable(search_term):
            found: tuple[QuerySet[Any], bool] = super().get_search_results(request, queryset, search_term)
            return found
        if "term" not in request.GET:  # whoever types into an autocomplete field sees that nothing is found
            bound = f"at most {MOST_SEARCH_CHARACTERS} characters and {MOST_SEARCH_WORDS} words"
            self.message_user(request, f"Search for {bound}.", messages.WARNING)
        return queryset.none(), False

    # --- pages ---------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        action = actions_of(self).get(request.POST.get("action", ""))
        if action is not None and not action.is_allowed(self, request):
            raise PermissionDenied  # where Django would say that no action was chosen
        self._require_ids(request.POST.getlist(ACTION_CHECKBOX_NAME))
        set_heading(request, self)
        return super().changelist_view(request, {"title": self.heading, **(extra_context or {})})

    def _require_ids(self, chosen: list[str]) -> None:
        """Refuse chosen rows whose ids no row can have: the database would fail on them."""
        for text in chosen:
            try:
                self.opts.pk.run_validators(self.opts.pk.to_python(text))
            except ValidationError as error:
                raise BadRequest("A chosen row has no such id.") from error
            if "\0" in text:
                raise BadRequest("A chosen row has no such id.")

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A service's refusal stands on the form, as a form's own does, with all that was typed."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ApiError as error:
            request.refusal = error.message  # type: ignore[attr-defined]
            return super().changeform_view(request, *args, **kwargs)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        refusal = getattr(request, "refusal", "")
        return with_refusal(form, refusal) if refusal else form

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, obj: Any = None, **kwargs: Any
    ) -> Any:
        if obj is not None and obj.pk is not None and not kwargs.get("add"):
            set_heading(request, self, (self.name_of(obj), ""))
            context["subtitle"] = self.name_of(obj)
            context["buttons"] = buttons_for(self, request, obj)
            context["links"] = self.links_of(request, obj)
            context["panels"] = self.panels_of(request, obj)
        else:
            set_heading(request, self, (context["title"], ""))
            # What is made here is made by a service, and may be followed by a page that is shown once.
            context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)

    def links_of(self, request: HttpRequest, row: Any) -> list[tuple[str, str, str]]:
        """Other pages about a row, beside its buttons: an icon, words, an address."""
        return []

    def panels_of(self, request: HttpRequest, row: Any) -> list[Panel]:
        """The panels below a row's fields, which other apps add."""
        return [
            panel
            for extension in extensions_of(self.model, request)
            if extension.panels is not None
            for panel in extension.panels(request, row)
        ]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        own = list(super().get_list_display(request))
        return own + [
            column for each in extensions_of(self.model, request) for column in extension_columns(each)
        ]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        changelist.result_list = list(changelist.result_list)
        self.fill_page(request, changelist.result_list)
        if not changelist.query and not changelist.has_active_filters:
            # Nothing is left out, so that the theme need not offer to show all.
            changelist.full_result_count = changelist.result_count
        return changelist

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        """Put on the rows of one page what they show beside their own columns, queried for all at once."""
        for extension in extensions_of(self.model, request):
            fill_cells(extension, rows)


class ReadOnlyAdmin(ModelAdmin):
    """A page that shows rows and lets nobody add or edit one; its actions still work."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class TabularInline(ThemedTabularInline):
    extra = 0
    can_delete = False
    # Its fields say which row it is.
    hide_title = True
