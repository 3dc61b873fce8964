"""The search of the command palette (Ctrl+K): the console's own pages, and rows by id or name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import site
from django.core.paginator import InvalidPage
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from billing.models import Reservation
from gateway_site.api.identifiers import uuid_or_none
from gateway_site.console.kit.list_lookups import is_searchable
from gateway_site.console.navigation import NAVIGATION
from inference.models import Activity, Backend, CatalogModel
from organization.models import AdminKey, Organization, Project, ProjectKey
from policies.models import Policy

# Rows of each model: a list to choose from, not to read.
MOST_ROWS = 5
MIN_CHARACTERS = 2
BY_ID: tuple[type[Model], ...] = (Activity, Reservation, Organization, Project, ProjectKey, AdminKey, Policy)
BY_NAME: tuple[tuple[type[Model], str], ...] = (
    (Organization, "name"),
    (Project, "name"),
    (ProjectKey, "name"),
    (Policy, "name"),
    (CatalogModel, "id"),
    (Backend, "name"),
)


@dataclass(frozen=True, slots=True)
class PaletteResult:
    """One result of the command palette, in the words of the theme's template."""

    title: str
    description: str
    link: str
    icon: str


def search(request: HttpRequest) -> HttpResponse:
    """Answer the palette. The theme alone takes text of any length and fails on a page that is none."""
    if not is_searchable(request.GET.get("s", "")):
        return HttpResponse()  # as for an empty one: nothing is found
    theme: Any = site
    try:
        found: HttpResponse = theme.search(request)
    except InvalidPage:
        raise Http404 from None
    return found


def find(request: HttpRequest, words: str) -> list[PaletteResult]:
    """Find pages and rows for the palette; only what this person may open."""
    text = words.strip()
    identifier = uuid_or_none(text)
    if identifier is not None:
        return list(_rows_by_id(request, identifier))
    return [*_pages_by_title(request, text), *_rows_by_name(request, text)]


def _pages_by_title(request: HttpRequest, text: str) -> Iterator[PaletteResult]:
    known = _links_found_by_theme(text)
    for group in NAVIGATION:
        for item in group["items"]:
            is_allowed = item.get("permission", lambda request: True)
            if text in item["title"].lower() and str(item["link"]) not in known and is_allowed(request):
                yield PaletteResult(
                    item["title"], group.get("title", "Console"), str(item["link"]), item["icon"]
                )


def _links_found_by_theme(text: str) -> set[str]:
    """Lists that the theme itself finds, by what their models or apps are called."""
    return {
        reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
        for options in (model._meta for model in site._registry)
        if text in f"{options.verbose_name_plural}\n{options.app_config.verbose_name}".lower()
    }


def _rows_by_id(request: HttpRequest, identifier: uuid.UUID) -> Iterator[PaletteResult]:
    for model in BY_ID:
        if _may_view(request, model) and (row := model._default_manager.filter(pk=identifier).first()):
            yield _row_result(row)


def _rows_by_name(request: HttpRequest, text: str) -> Iterator[PaletteResult]:
    if len(text) < MIN_CHARACTERS:
        return
    for model, field in BY_NAME:
        if _may_view(request, model):
            rows = model._default_manager.filter(**{f"{field}__icontains": text})
            yield from (_row_result(row) for row in rows.order_by(field)[:MOST_ROWS])


def _may_view(request: HttpRequest, model: type[Model]) -> bool:
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def _row_result(row: Model) -> PaletteResult:
    options = row._meta
    link = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[row.pk])
    return PaletteResult(str(row), str(options.verbose_name), link, "arrow_outward")
