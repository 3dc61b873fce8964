"""What the command palette finds: the console's own pages, and things by id or name."""

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

# Of each kind: a list to choose from, not to read.
MOST = 5
SHORTEST_NAME = 2
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
class Found:
    """In the words of the palette's template."""

    title: str
    description: str
    link: str
    icon: str


def search(request: HttpRequest) -> HttpResponse:
    """The palette's results. The theme computes on a text of any length and fails on a page that is none."""
    if not is_searchable(request.GET.get("s", "")):
        return HttpResponse()  # as for an empty one: nothing is found
    theme: Any = site
    try:
        found: HttpResponse = theme.search(request)
    except InvalidPage:
        raise Http404 from None
    return found


def find(request: HttpRequest, words: str) -> list[Found]:
    """Only what this person may open."""
    text = words.strip()
    identifier = uuid_or_none(text)
    if identifier is not None:
        return list(_with_id(request, identifier))
    return [*_pages(request, text), *_named(request, text)]


def _pages(request: HttpRequest, text: str) -> Iterator[Found]:
    known = _found_by_theme(text)
    for group in NAVIGATION:
        for item in group["items"]:
            is_allowed = item.get("permission", lambda request: True)
            if text in item["title"].lower() and str(item["link"]) not in known and is_allowed(request):
                yield Found(item["title"], group.get("title", "Console"), str(item["link"]), item["icon"])


def _found_by_theme(text: str) -> set[str]:
    """Lists that the theme itself finds, by what their models or apps are called."""
    return {
        reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
        for options in (model._meta for model in site._registry)
        if text in f"{options.verbose_name_plural}\n{options.app_config.verbose_name}".lower()
    }


def _with_id(request: HttpRequest, identifier: uuid.UUID) -> Iterator[Found]:
    for model in BY_ID:
        if _may_view(request, model) and (row := model._default_manager.filter(pk=identifier).first()):
            yield _found(row)


def _named(request: HttpRequest, text: str) -> Iterator[Found]:
    if len(text) < SHORTEST_NAME:
        return
    for model, field in BY_NAME:
        if _may_view(request, model):
            rows = model._default_manager.filter(**{f"{field}__icontains": text})
            yield from (_found(row) for row in rows.order_by(field)[:MOST])


def _may_view(request: HttpRequest, model: type[Model]) -> bool:
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def _found(row: Model) -> Found:
    options = row._meta
    link = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[row.pk])
    return Found(str(row), str(options.verbose_name), link, "arrow_outward")
