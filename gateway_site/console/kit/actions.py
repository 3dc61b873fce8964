"""
What people do in the console: always a POST with its token, after a page that says what will happen.

An action is declared once, with `confirmed`, and is then in two places: among the actions of the list, for
the rows that were chosen, and as a button on each object's own page. Both lead to the same page, and a GET
of it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import add_never_cache_headers

from gateway_site.api import errors

# More than one page of a list is not acted on at once, whatever is posted.
MOST_ROWS = 100
# Of how many rows the facts are told, since each may take a query.
MOST_TOLD = 20

Facts = Iterable[tuple[str, Any]]
# Called with the row, and with what the form said where there is one.
Perform = Callable[..., HttpResponse | str | None]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to a row, and what people are told and asked before."""

    name: str
    label: str
    consequence: str
    perform: Perform
    done: str
    icon: str = ""
    # A permission such as `billing.add_creditgrant`; without one, that to change the row's model.
    permission: str = ""
    # What will happen to this very row, as pairs of a name and a value.
    facts: Callable[..., Facts] | None = None
    # Whether there is anything to do; a button that could only fail is not shown.
    applies: Callable[[Any], bool] | None = None
    form: type[ActionForm] | None = None
    # Whether what was typed is shown again, with its facts, before it is carried out.
    is_reviewed: bool = False
    one_at_a_time: bool = False
    is_dangerous: bool = False
    # Carried out from the button itself: it harms nothing, and asking would be a nuisance.
    is_immediate: bool = False
    # Called once with all rows, where that is quicker than one after another. It tells people itself.
    is_for_all: bool = False
    # The row is gone afterwards, and its page with it.
    is_removal: bool = False

    def is_allowed(self, page: Any, request: HttpRequest) -> bool:
        if self.permission:
            return bool(request.user.has_perm(self.permission))
        return bool(page.has_operate_permission(request))

    def is_offered(self, page: Any, request: HttpRequest, row: Any) -> bool:
        """Whether this person gets a button for it on this row's page."""
        if not self.is_allowed(page, request) or not page.offers(request, row):
            return False
        return self.applies is None or self.applies(row)

    def facts_of(self, row: Any, given: dict[str, Any] | None = None) -> list[tuple[str, Any]]:
        return list(self.facts(row, given or {})) if self.facts else []


class ActionForm(forms.Form):
    """What a person is asked before an action. It knows who asks, and of which rows."""

    def __init__(self, *args: Any, request: HttpRequest, rows: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Asked:
    """One person's request for one action, and the page it was made on."""

    page: Any
    request: HttpRequest
    action: Action
    rows: list[Any]
    # Where to go afterwards, and when the person thinks better of it.
    back: str
    # What says again, in a list's form, which action and rows were meant.
    hidden: list[tuple[str, str]]

    def answer(self) -> HttpResponse:
        """The page that asks, or what comes of it."""
        form = self._form()
        if form is not None and form.is_bound and not form.is_valid():
            return self._ask(form)
        is_sure = self.request.POST.get("confirmed") == "yes" or self.action.is_immediate
        if self.request.method == "POST" and is_sure:
            return self._carry_out(form)
        return self._ask(form)

    def _form(self) -> ActionForm | None:
        if self.action.form is None:
            return None
        is_filled = "asked" in self.request.POST or "confirmed" in self.request.POST
        data = self.request.POST if is_filled else None
        return self.action.form(data, request=self.request, rows=self.rows)

    def _ask(self, form: ActionForm | None) -> HttpResponse:
        action = self.action
        is_valid = form is not None and form.is_bound and form.is_valid()
        given = form.cleaned_data if form is not None and is_valid else {}
        is_last = form is None or not action.is_reviewed or is_valid
        context = {
            "action": action,
            "told": [(self.page.name_of(row), action.facts_of(row, given)) for row in self.rows[:MOST_TOLD]],
            "untold": max(0, len(self.rows) - MOST_TOLD),
            "form": form,
            "is_review": is_last and action.is_reviewed,
            "is_last": is_last,
            "hidden": self.hidden,
            "back": self.back,
        }
        about = self.rows[0] if len(self.rows) == 1 else None
        return page_of(self.page, self.request, "admin/confirm_action.html", action.label, context, about)

    def _carry_out(self, form: ActionForm | None) -> HttpResponse:
        if self.action.is_for_all:
            self.action.perform(self.page, self.request, self.rows)
            return HttpResponseRedirect(self.back)
        for row in self.rows:
            name = self.page.name_of(row)
            try:
                answer = self._perform(row, form)
            except errors.PermissionDenied as refusal:
                raise PermissionDenied from refusal
            except errors.ApiError as error:
                if form is not None and self.action.is_reviewed:
                    form.add_error(None, error.message)  # with what was typed, to be put right
                    return self._ask(form)
                self.page.message_user(self.request, f"{name}: {error.message}", messages.ERROR)
                continue
            if isinstance(answer, HttpResponse):
                return answer
            self.page.message_user(self.request, f"{name}: {answer or self.action.done}.", messages.SUCCESS)
        options = self.page.opts
        listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
        return HttpResponseRedirect(listing if self.action.is_removal else self.back)

    def _perform(self, row: Any, form: ActionForm | None) -> HttpResponse | str | None:
        if form is None:
            return self.action.perform(self.page, self.request, row)
        return self.action.perform(self.page, self.request, row, form.cleaned_data)


def confirmed(
    *, label: str, consequence: str, done: str = "", permission: str = "", **options: Any
) -> Callable[[Perform], Any]:
    """
    Make an action of a function that is called with the page, the request, a row, and the form's values if
    the action has a form. It may return an answer, or a word for what was done. Options are Action's.
    """

    def decorate(perform: Perform) -> Any:
        action = Action(
            name=perform.__name__,
            label=label,
            consequence=consequence,
            perform=perform,
            done=done or f"{label.lower()} done",
            permission=permission,
            **options,
        )

        @admin.action(description=label)
        @wraps(perform)
        def from_list(page: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
            return _answer_list(page, request, action, list(queryset[: MOST_ROWS + 1]))

        from_list.action = action  # type: ignore[attr-defined]
        return from_list

    return decorate


def actions_of(page: Any) -> dict[str, Action]:
    """What can be done on a page's rows, by name."""
    found = {}
    for each in page.all_actions():
        function = getattr(type(page), each, None) if isinstance(each, str) else each
        if (action := getattr(function, "action", None)) is not None:
            found[action.name] = action
    return found


def answer_on_row(page: Any, request: HttpRequest, row: Any, name: str) -> HttpResponse:
    """The page of one action for one row: a GET asks, a POST may act."""
    action = actions_of(page).get(name)
    if action is None or not page.has_view_permission(request, row) or not action.is_allowed(page, request):
        raise PermissionDenied
    return Asked(page, request, action, [row], address_of(row), []).answer()


def buttons_for(page: Any, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
    """The actions that this person can take on this row, with their addresses."""
    options = page.opts
    name = f"admin:{options.app_label}_{options.model_name}_do"
    return [
        {"action": action, "address": reverse(name, args=[quote(row.pk), action.name])}
        for action in actions_of(page).values()
        if action.is_offered(page, request, row)
    ]


def address_of(row: Any) -> str:
    """The page of a row in the console."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"{name}_change", args=[quote(row.pk)])


def show_once(
    page: Any, request: HttpRequest, *, title: str, secret: str, what: str = "value"
) -> HttpResponse:
    """A page with a secret that will not be shown again."""
    response = page_of(page, request, "admin/secret_once.html", title, {"secret": secret, "what": what})
    add_never_cache_headers(response)
    return response


def page_of(
    page: Any, request: HttpRequest, template: str, title: str, context: dict[str, Any], row: Any = None
) -> TemplateResponse:
    """One of the console's own pages about a model, or about one row of it."""
    steps = [] if row is None else [(page.name_of(row), address_of(row))]
    everywhere = page.admin_site.each_context(request)
    head(request, page, *steps, (title, ""))
    return TemplateResponse(request, template, {**everywhere, "title": title, "opts": page.opts, **context})


def head(request: HttpRequest, page: Any, *steps: tuple[str, str]) -> None:
    """What the page's heading says after the name of its list, as words and addresses. Shown as it is."""
    options = page.opts
    listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    request.heading = [(page.heading, listing if steps else ""), *steps]  # type: ignore[attr-defined]


def _answer_list(page: Any, request: HttpRequest, action: Action, rows: list[Any]) -> HttpResponse | None:
    if not action.is_allowed(page, request):
        raise PermissionDenied
    if len(rows) < min(len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))), MOST_ROWS):
        # Changed meanwhile, so that the list's filter leaves it out.
        message = "Something that you chose is not in this list any more. Nothing was done: choose again."
        page.message_user(request, message, messages.ERROR)
        return None
    if len(rows) > MOST_ROWS:
        page.message_user(request, f"Choose {MOST_ROWS} rows at most.", messages.ERROR)
        return None
    if action.one_at_a_time and len(rows) != 1:
        page.message_user(request, f"Choose one row to {action.label.lower()}.", messages.ERROR)
        return None
    hidden = [("action", action.name), *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows)]
    return Asked(page, request, action, rows, request.get_full_path(), hidden).answer()
