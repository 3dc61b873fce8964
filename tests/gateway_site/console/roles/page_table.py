"""
Every page of the console, and who may open it and post to it.

The pages of models are made from the admin registry, the others are written down. A URL of the console that
is in neither fails `test_role_matrix`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin import site
from django.contrib.admindocs.views import extract_views_from_urlpatterns, simplify_regex
from django.urls import reverse

from gateway_site.urls import urlpatterns
from tests.gateway_site.console.factories import SampleRows, action_url, every_action, form_of, list_url, page

# What has a form for a new one, and what has one for changes; the rest is done by actions.
ADDED_BY_FORM = {
    "organization", "project", "projectkey", "adminkey", "creditgrant", "policy", "backend", "catalogmodel",
    "passedcheck", "user",
}  # fmt: skip
CHANGED_BY_FORM = {"policy", "backend", "catalogmodel"}
SHOWS_A_SECRET = {"rotate", "reset_password"}
OK, REDIRECT, FORBIDDEN, MISSING, NO_METHOD = 200, 302, 403, 404, 405

PATTERNS: list[Any] = urlpatterns
May = Callable[[str], bool]
ANYBODY = ""


@dataclass(frozen=True)
class Page:
    """One URL, as a member of staff meets it. A permission of None is had by nobody."""

    pattern: str
    address: str
    to_get: str | None = ANYBODY
    to_post: str | None = ANYBODY
    got: int = OK
    posted: int | tuple[int, ...] = NO_METHOD
    refused: int = FORBIDDEN
    fields: dict[str, str] = field(default_factory=dict)
    # The permission to see the row that is acted on.
    to_see: str = ANYBODY

    def expected(self, method: str, may: May) -> tuple[int, ...]:
        needed = self.to_post if method == "POST" else self.to_get
        is_allowed = needed is not None and all(may(each) for each in (needed, self.to_see) if each)
        answered = self.posted if method == "POST" else self.got
        if not is_allowed:
            return (self.refused,)
        return answered if isinstance(answered, tuple) else (answered,)

    def is_refused(self, method: str, may: May) -> bool:
        return self.expected(method, may) == (self.refused,)


def every_page(samples: SampleRows) -> list[Page]:
    return [
        *special_pages(samples),
        *(each for model in site._registry for each in pages_of(model, samples[model])),
        *(each for model, action in every_action() for each in action_pages(samples[model], action)),
        *autocompletions(),
    ]


def pages_of(model: Any, row: Any) -> Iterator[Page]:
    app, name = model._meta.app_label, model._meta.model_name
    under, view = f"/admin/{app}/{name}", f"{app}.view_{name}"
    add = f"{app}.add_{name}" if name in ADDED_BY_FORM else None
    change = f"{app}.change_{name}" if name in CHANGED_BY_FORM else None
    gone = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
    forged = {"name": "forged", "username": "forged"}
    # A list has no use for a POST that is no action of its own: it shows itself again.
    yield Page(f"{under}/", list_url(model), view, view, posted=(OK, REDIRECT), fields=gone)
    yield Page(f"{under}/add/", list_url(model, "add"), add, add, posted=(OK, REDIRECT), fields=forged)
    # What does not validate is shown again, and what does is saved.
    yield Page(f"{under}/<object_id>/change/", page(row), view, change, posted=(OK, REDIRECT), fields=forged)
    yield Page(f"{under}/<object_id>/delete/", page(row, "delete"), None, None, fields={"post": "yes"})
    yield Page(f"{under}/<object_id>/history/", page(row, "history"), got=MISSING, posted=MISSING)
    short = page(row).removesuffix("change/")
    yield Page(f"{under}/<object_id>/", short, got=REDIRECT, posted=REDIRECT)
    yield Page(f"{under}/<object_id>/do/<action_name>/", action_url(row, "no-such-action"), None, None)


def action_pages(row: Any, action: Any) -> Iterator[Page]:
    """On its own page and from the list."""
    app, name = row._meta.app_label, row._meta.model_name
    needed, view = action.permission or f"{app}.change_{name}", f"{app}.view_{name}"
    done = (OK,) if action.name in SHOWS_A_SECRET else (REDIRECT,)
    pattern = f"/admin/{app}/{name}/<object_id>/do/<action_name>/"
    yield Page(
        pattern,
        action_url(row, action.name),
        needed,
        needed,
        posted=done,
        fields=form_of(action),
        to_see=view,
    )
    chosen = {"action": action.name, "_selected_action": str(row.pk), **form_of(action)}
    yield Page(
        f"/admin/{app}/{name}/",
        list_url(row),
        view,
        needed,
        posted=(OK, REDIRECT),
        fields=chosen,
        to_see=view,
    )


def special_pages(samples: SampleRows) -> list[Page]:
    activity = "inference.view_activity"
    play, costs, models = "inference.use_playground", "billing.view_costline", "inference.change_catalogmodel"
    project, policy = (
        samples.customer.project,
        next(row for row in samples.rows.values() if _is(row, "policy")),
    )
    receipt = reverse("playground-receipt", args=[uuid.uuid4()])
    days = f"?organization={samples.customer.organization.pk}&first_day=2026-01-01&last_day=2026-01-02"
    trying = reverse("admin:policies_policy_try", args=[policy.pk])
    view_policy, change_policy = "policies.view_policy", "policies.change_policy"
    return [
        Page("/admin/", "/admin/", posted=OK),
        Page("/admin/costs/", "/admin/costs/", costs, None, refused=FORBIDDEN),
        Page("/admin/costs.csv", f"/admin/costs.csv{days}", costs, None),
        Page("/admin/prices/", "/admin/prices/", models, models, posted=409),  # nothing was shown
        Page("/admin/tail/", "/admin/tail/", activity, None),
        Page("/admin/playground/", "/admin/playground/", play, None),
        Page(
            "/admin/playground/session",
            "/admin/playground/session",
            None,
            play,
            posted=OK,
            fields={"project": str(project.pk)},
        ),
        Page("/admin/playground/end", "/admin/playground/end", None, play, posted=204),
        Page("/admin/playground/receipt/<request_id>", receipt, activity, None),
        Page(
            "/admin/policies/policy/<policy_id>/try/",
            trying,
            view_policy,
            change_policy,
            posted=OK,
            fields={"text": "x"},
        ),
        Page("/admin/search/", "/admin/search/?s=a", posted=OK),
        Page("/admin/autocomplete/", "/admin/autocomplete/", None, None),
        Page("/admin/jsi18n/", "/admin/jsi18n/", to_post=None),
        Page("/admin/password_change/", "/admin/password_change/", posted=OK),
        Page("/admin/password_change/done/", "/admin/password_change/done/", to_post=None),
        Page("/admin/r/<content_type_id>/<object_id>/", "/admin/r/1/1/", got=MISSING, posted=MISSING),
        Page("/admin/<url>", "/admin/nowhere/", got=MISSING, posted=MISSING),
        *(
            Page("/admin/<app_label>/", f"/admin/{app}/", f"{app}.view_{model}", f"{app}.view_{model}",
                 posted=OK, refused=MISSING)
            for app, model in {each._meta.app_label: each._meta.model_name for each in site._registry}.items()
        ),
    ]  # fmt: skip


# Who comes in and goes out: no page of the console, and tested where log-ins are.
DOORS = {"/admin/login/", "/admin/logout/"}


def _is(row: Any, name: str) -> bool:
    return bool(row._meta.model_name == name)


def autocompletions() -> Iterator[Page]:
    """What a page's fields and filters offer while one types: the rows of another list."""
    for model, its_page in site._registry.items():
        filters = [each[0] for each in its_page.list_filter if isinstance(each, tuple)]
        related = [name for name in filters if model._meta.get_field(str(name)).is_relation]
        for name in sorted({*its_page.autocomplete_fields, *map(str, related)}):
            there: Any = model._meta.get_field(name).related_model
            address = (
                f"/admin/autocomplete/?app_label={model._meta.app_label}"
                f"&model_name={model._meta.model_name}&field_name={name}"
            )
            view = f"{there._meta.app_label}.view_{there._meta.model_name}"
            yield Page("/admin/autocomplete/", address, view, None)


def served_patterns() -> set[str]:
    """Every URL pattern of the console."""
    found = {
        re.sub(r"<(?:\w+:)?(\w+)>", r"<\1>", simplify_regex(str(pattern)))
        for _, pattern, *_ in extract_views_from_urlpatterns(PATTERNS)
    }
    return {pattern for pattern in found if pattern.startswith("/admin/")}
