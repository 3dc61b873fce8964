"""Every screen of the console, found by asking it: its name, and where it is once there are rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from django.contrib.admin import site
from django.urls import reverse

from policies.models import Policy
from tests.e2e.console.console_data import UNBROKEN

# Somebody who may do everything, for the pages to say what can be done on them.
ANYONE: Any = SimpleNamespace(
    user=SimpleNamespace(has_perm=lambda *_: True, is_active=True, is_superuser=True)
)


@dataclass(frozen=True)
class Screen:
    name: str
    route: str
    row_of: Any = None
    query: str = ""

    def path(self) -> str:
        if self.row_of is None:
            return reverse(self.route) + self.query
        row = _row_of(self.row_of)
        assert row is not None, f"the data has no {self.row_of._meta.verbose_name}"
        return reverse(self.route, args=[row.pk])


def _row_of(model: Any) -> Any:
    """The one with the worst name, where there is one."""
    rows, columns = model._default_manager.order_by("pk"), {field.name for field in model._meta.fields}
    name = "name" if "name" in columns else "organization__name" if "organization" in columns else ""
    return (rows.filter(**{name: UNBROKEN}).first() if name else None) or rows.first()


LOGIN = Screen("login", "admin:login")
PAGES = [
    Screen("overview", "admin:index"),
    Screen("costs", "costs"),
    Screen("sync prices", "price-sync"),
    Screen("playground", "playground"),
    Screen("live tail", "live-tail"),
    Screen("nothing found", "admin:organization_project_changelist", query="?q=nothing-is-called-this"),
    Screen("policies, try", "admin:policies_policy_try", Policy),
    Screen("password change", "admin:password_change"),
    Screen("documentation", "docs"),
]


def every_screen() -> list[Screen]:
    return [*PAGES, *(screen for model in site._registry for screen in _screens_of(model))]


def _screens_of(model: Any) -> Iterator[Screen]:
    page = site._registry[model]
    route = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    named = model._meta.verbose_name_plural
    yield Screen(f"{named}, list", f"{route}_changelist")
    if page.has_add_permission(ANYONE):
        yield Screen(f"{named}, new", f"{route}_add")
    yield Screen(f"{named}, one", f"{route}_change", model)
