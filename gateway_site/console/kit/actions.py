"""
Actions of the console's pages: always a POST with its token, after a page that says what will happen.

An action is declared once, with `confirmed_action`, and is then offered twice: among the actions of the list,
for the rows that were chosen, and as a button on each object's own page. Both lead to the same confirmation
page, and a GET of it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
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

# How many rows are acted on at once, whatever is posted, unless an action takes more (`most_rows`).
MOST_ROWS = 100
# How many rows are described on a confirmation page, since each may take a query.
MOST_DESCRIBED = 20

# Lines of a confirmation page: a name and a value.
ConfirmationRows = Iterable[tuple[str, Any]]
# Called with the page, the request, the row, and the form's values where there is a form.
Perform = Callable[..., HttpResponse | str | None]


class Confirmation(Enum):
    """How a person confirms an action before it is carried out."""

    NONE = "the button carries it out: it harms nothing, and asking would be a nuisance"
    PAGE = "one page says what will happen, and has the action's form if there is one"
    REVIEW = "what was typed into the form is shown again, with its confirmation rows"


class Selection(Enum):
    """How many rows of a list an action takes, and how its function gets them."""

    ONE = "a single row"
    EACH = "any number: the function is called for one after another"
    TOGETHER = "any number: the function is called once, with a list"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to a row, and how people are asked before."""

    name: str
    label: str
    consequence: str
    perform: Perform
    # A participle for the message afterwards, where `perform` returns none.
    done: str
    icon: str = ""
    # A permission such as `billing.add_creditgrant`; without one, that to change the row's model.
    permission: str = ""
    # What will happen to this very row; called with the row and what the form said so far.
    confirmation_rows: Callable[..., ConfirmationRows] | None = None
    # What will happen to all of several rows together.
    summary: Callable[[list[Any]], ConfirmationRows] | None = None
    # How many rows it takes of those that a list's filter matches, where a person chooses all of them.
    most_rows: int = MOST_ROWS
    # Whether there is anything to do; a button that could only fail is not shown.
    applies: Callable[[Any], bool] | None = None
    form: type[ActionForm] | None = None
    confirmation: Confirmation = Confirmation.PAGE
    selection: Selection = Selection.EACH
    # Whether its button warns by its colour.
    is_dangerous: bool = False
    # Whether the row is gone afterwards, and its page with it.
    removes_row: bool = False

    @property
    def is_immediate(self) -> bool:
        return self.confirmation is Confirmation.NONE

    @property
    def is_reviewed(self) -> bool:
        return self.confirmation is Confirmation.REVIEW

    def is_allowed(self, page: Any, request: HttpRequest) -> bool:
        if self.permission:
            return bool(request.user.has_perm(self.permission))
        return bool(page.has_operate_permission(request))

    def is_offered(self, page: Any, request: HttpRequest, row: Any) -> bool:
        """Whether this person gets a button for the action on this row's page."""
        if not self.is_allowed(page, request) or not page.offers(request, row):
            return False
        return self.applies is None or self.applies(row)

    def describe(self, row: Any, given: dict[str, Any]) -> list[tuple[str, Any]]:
        return list(self.confirmation_rows(row, given)) if self.confirmation_rows else []


class ActionForm(forms.Form):
    """The form of an action. It knows the request, and the rows that were chosen."""

    def __init__(self, *args: Any, request: HttpRequest, rows: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.rows = rows


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """One person's request for one action on some rows, and the page that it was made on."""

    page: Any
    request: HttpRequest
    action: Action
    rows: list[Any]
    # Where to go afterwards, and when the person thinks better of it.
    back: str
    # What names the action and the rows again, in a list's form.
    hidden: list[tuple[str, str]]

    def respond(self) -> HttpResponse:
        """Answer with the confirmation page, or carry the action out where it is confirmed."""
        form = self._form()
        if form is not None and form.is_bound and not form.is_valid():
            return self._confirmation_page(form)
        is_confirmed = self.request.POST.get("confirmed") == "yes" or self.action.is_immediate
        if self.request.method == "POST" and is_confirmed:
            return self._carry_out(form)
        return self._confirmation_page(form)

    def _form(self) -> ActionForm | None:
        if self.action.form is None:
            return None
        is_filled = "asked" in self.request.POST or "confirmed" in self.request.POST
        data = self.request.POST if is_filled else None
        return self.action.form(data, request=self.request, rows=self.rows)

    def _confirmation_page(self, form: ActionForm | None) -> HttpResponse:
        action = self.action
        is_valid = form is not None and form.is_bound and form.is_valid()
        given = form.cleaned_data if form is not None and is_valid else {}
        is_last = form is None or not action.is_reviewed or is_valid
        context = {
            "action": action,
            "described": [
                (self.page.name_of(row), action.describe(row, given)) for row in self.rows[:MOST_DESCRIBED]
            ],
            "summary": list(action.summary(self.rows)) if action.summary and len(self.rows) > 1 else [],
            "undescribed": max(0, len(self.rows) - MOST_DESCRIBED),
            "form": form,
            "is_review": is_last and action.is_reviewed,
            "is_last": is_last,
            "hidden": self.hidden,
            "back": self.back,
        }
        about = self.rows[0] if len(self.rows) == 1 else None
        return render_page(self.page, self.request, "admin/confirm_action.html", action.label, context, about)

    def _carry_out(self, form: ActionForm | None) -> HttpResponse:
        is_together = self.action.selection is Selection.TOGETHER
        done = "" if is_together else self.action.done
        for name, target in self._targets(is_together):
            try:
                answer = self._perform(target, form)
            except errors.PermissionDenied as refusal:
                raise PermissionDenied from refusal
            except errors.ApiError as error:
                if form is not None and self.action.is_reviewed:
                    form.add_error(None, error.message)  # with what was typed, to be put right
                    return self._confirmation_page(form)
                self.page.message_user(self.request, f"{name}: {error.message}", messages.ERROR)
                continue
            if isinstance(answer, HttpResponse):
                return answer
            if answer or done:
                self.page.message_user(self.request, f"{name}: {answer or done}.", messages.SUCCESS)
        options = self.page.opts
        listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
        return HttpResponseRedirect(listing if self.action.removes_row else self.back)

    def _targets(self, is_together: bool) -> list[tuple[str, Any]]:
        """What the function is called with, one after another, and what messages call it."""
        if is_together:
            return [(self.action.label, self.rows)]
        return [(self.page.name_of(row), row) for row in self.rows]

    def _perform(self, target: Any, form: ActionForm | None) -> HttpResponse | str | None:
        if form is None:
            return self.action.perform(self.page, self.request, target)
        return self.action.perform(self.page, self.request, target, form.cleaned_data)


def confirmed_action(
    *,
    label: str,
    consequence: str,
    done: str = "",
    icon: str = "",
    permission: str = "",
    confirmation_rows: Callable[..., ConfirmationRows] | None = None,
    summary: Callable[[list[Any]], ConfirmationRows] | None = None,
    most_rows: int = MOST_ROWS,
    applies: Callable[[Any], bool] | None = None,
    form: type[ActionForm] | None = None,
    confirmation: Confirmation = Confirmation.PAGE,
    selection: Selection = Selection.EACH,
    is_dangerous: bool = False,
    removes_row: bool = False,
) -> Callable[[Perform], Any]:
    """
    Make an action of a function that is called with the page, the request, a row (or a list of them, by its
    selection), and the form's values if the action has a form. It may return an answer, or a word for what
    was done. See `Action`.
    """

    def decorate(perform: Perform) -> Any:
        action = Action(
            name=perform.__name__,
            label=label,
            consequence=consequence,
            perform=perform,
            done=done or f"{label.lower()} done",
            icon=icon,
            permission=permission,
            confirmation_rows=confirmation_rows,
            summary=summary,
            most_rows=most_rows,
            applies=applies,
            form=form,
            confirmation=confirmation,
            selection=selection,
            is_dangerous=is_dangerous,
            removes_row=removes_row,
        )
        return _list_action(action)

    return decorate


def _list_action(action: Action) -> Any:
    """Make the function that Django calls for an action with the rows that were chosen in a list."""

    @admin.action(description=action.label)
    @wraps(action.perform)
    def from_list(page: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return _respond_to_list(page, request, action, list(queryset[: action.most_rows + 1]))

    from_list.action = action  # type: ignore[attr-defined]
    return from_list


def actions_of(page: Any) -> dict[str, Action]:
    """The actions that a page declares for its rows, by name."""
    found = {}
    for each in page.all_actions():
        function = getattr(type(page), each, None) if isinstance(each, str) else each
        if (action := getattr(function, "action", None)) is not None:
            found[action.name] = action
    return found


def respond_to_row_action(page: Any, request: HttpRequest, row: Any, name: str) -> HttpResponse:
    """Answer for one action on one row: a GET shows the confirmation page, a POST may carry it out."""
    action = actions_of(page).get(name)
    if action is None or not page.has_view_permission(request, row) or not action.is_allowed(page, request):
        raise PermissionDenied
    return ActionRequest(page, request, action, [row], address_of(row), []).respond()


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
    """The address of a row's page in the console."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"{name}_change", args=[quote(row.pk)])


def show_secret_once(
    page: Any, request: HttpRequest, *, title: str, secret: str, what: str = "value"
) -> HttpResponse:
    """Answer with a page that shows a secret which will not be shown again."""
    response = render_page(page, request, "admin/secret_once.html", title, {"secret": secret, "what": what})
    add_never_cache_headers(response)
    return response


def render_page(
    page: Any, request: HttpRequest, template: str, title: str, context: dict[str, Any], row: Any = None
) -> TemplateResponse:
    """Render one of the console's own pages about a model, or about one row of it."""
    steps = [] if row is None else [(page.name_of(row), address_of(row))]
    everywhere = page.admin_site.each_context(request)
    set_heading(request, page, *steps, (title, ""))
    return TemplateResponse(request, template, {**everywhere, "title": title, "opts": page.opts, **context})


def set_heading(request: HttpRequest, page: Any, *steps: tuple[str, str]) -> None:
    """Set what the page's heading says after the name of its list, as words and addresses."""
    options = page.opts
    listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    request.heading = [(page.heading, listing if steps else ""), *steps]  # type: ignore[attr-defined]


def _respond_to_list(page: Any, request: HttpRequest, action: Action, rows: list[Any]) -> HttpResponse | None:
    if not action.is_allowed(page, request):
        raise PermissionDenied
    if (missing := min(len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))), MOST_ROWS) - len(rows)) > 0:
        # Changed meanwhile, so that the list's filter leaves it out.
        if action.selection is not Selection.TOGETHER or not rows:
            message = "Something that you chose is not in this list any more. Nothing was done: choose again."
            page.message_user(request, message, messages.ERROR)
            return None
        message = f"{missing} of what you chose left this list meanwhile, and nothing is done to it."
        page.message_user(request, message, messages.WARNING)
    # Django gives all that the list's filter matches then, and not only the rows of the page.
    is_across = request.POST.get("select_across") == "1"
    most = action.most_rows if is_across else MOST_ROWS
    if len(rows) > most:
        page.message_user(request, f"Choose {most} rows at most.", messages.ERROR)
        return None
    if action.selection is Selection.ONE and len(rows) != 1:
        page.message_user(request, f"Choose one row to {action.label.lower()}.", messages.ERROR)
        return None
    # By their ids where they are few; else the filter is asked again, and the action's form says for which.
    named = rows if len(rows) <= MOST_ROWS else rows[:1]
    hidden = [("action", action.name), *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in named)]
    if len(rows) > MOST_ROWS:
        hidden.append(("select_across", "1"))
    return ActionRequest(page, request, action, rows, request.get_full_path(), hidden).respond()
