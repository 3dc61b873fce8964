"""An address narrows a list by what the list's filters declare; every other lookup is refused unread."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from billing.models import CreditGrant
from inference.models import Activity
from organization.models import AuditEvent, Organization, ProjectKey
from tests.gateway_site.console.factories import MODELS, SampleRows, list_url, page

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
LOOKUPS = (
    "",
    "exact",
    "iexact",
    "regex",
    "iregex",
    "startswith",
    "contains",
    "icontains",
    "isnull",
    "in",
    "gt",
)
PAGES = list(site._registry)


def lookups_of(model: type[Model]) -> Iterator[str]:
    """Every lookup on every column, and on every column of what the model refers to."""
    for field in model._meta.get_fields(include_hidden=True):
        yield from _with_lookups(field.name)
        if field.is_relation and field.related_model is not None:
            for further in field.related_model._meta.get_fields(include_hidden=True):
                yield from _with_lookups(f"{field.name}__{further.name}")


def _with_lookups(path: str) -> list[str]:
    return [f"{path}__{lookup}" if lookup else path for lookup in LOOKUPS]


def declared(model: type[Model], user: Any) -> set[str]:
    """What the list's own filters say that they read."""
    request = RequestFactory().get(list_url(model))
    request.user = user
    changelist = site._registry[model].get_changelist_instance(request)
    read = {name or "" for spec in changelist.filter_specs for name in spec.expected_parameters()}
    return read | set(getattr(site._registry[model], "linked_lookups", ()))


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label_lower)
def test_only_declared_lookups_are_allowed(model: type[Model], samples: SampleRows) -> None:
    user = User.objects.create_superuser("root")
    allowed, its_page = declared(model, user), site._registry[model]
    request = RequestFactory().get(list_url(model))
    request.user = user

    passed = {lookup for lookup in lookups_of(model) if its_page.lookup_allowed(lookup, "x", request)}

    assert passed <= allowed | _without_output(its_page)


def _without_output(its_page: Any) -> set[str]:
    """Parameters of filters that are not drawn: there is nothing to choose, or no link brought them."""
    names = set()
    for each in its_page.list_filter:
        path = each if isinstance(each, str) else each[0] if isinstance(each, tuple) else ""
        names |= {f"{path}__id__exact", f"{path}__isnull"} if path else set(getattr(each, "parameters", ()))
    return names


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label_lower)
def test_filters_get_every_parameter_that_they_read(model: type[Model], samples: SampleRows) -> None:
    root = User.objects.create_superuser("root")
    its_page = site._registry[model]
    request = RequestFactory().get(list_url(model))
    request.user = root

    for name in declared(model, root):
        # Of requests, these are never empty, and the list takes no parameter that it has no use for.
        if model is not Activity or not name.endswith("__isnull"):
            assert its_page.lookup_allowed(name, "x", request), name


@pytest.mark.parametrize(
    ("model", "query"),
    [
        (ProjectKey, {"name__regex": "^(a+)+$"}),
        (ProjectKey, {"digest__startswith": "a"}),
        (User, {"password__regex": "^pbkdf2"}),
        (User, {"username": "ada", "password__startswith": "p"}),
        (User, {"groups__name__regex": "^(a+)+$"}),
        (User, {"groups__user__password__startswith": "p"}),
        (AuditEvent, {"details__contains": "x"}),
        (AuditEvent, {"occurred_at__year": "2026"}),
        (ProjectKey, {"project__organization__name__iregex": "(a+)+"}),
        (CreditGrant, {"account__organization__name__contains": "A"}),
    ],
)
def test_a_lookup_that_no_filter_has_is_refused_unread(
    model: type[Model], query: dict[str, str], console: Client, samples: SampleRows
) -> None:
    with CaptureQueriesContext(connection) as made:
        answer = console.get(list_url(model), query)

    assert answer.status_code == 400
    assert len(made) == 2, "the session and its person, and nothing else"


@pytest.mark.slow
def test_filters_and_links_still_narrow(console: Client, samples: SampleRows) -> None:
    organization = samples[Organization]
    queries: list[tuple[type[Model], dict[str, str]]] = [
        (ProjectKey, {"project__id__exact": str(samples[ProjectKey].project_id)}),
        (CreditGrant, {"account__organization__id__exact": str(organization.pk)}),
        (AuditEvent, {"actor_kind__exact": "staff"}),
        (AuditEvent, {"organization__id__exact": str(organization.pk)}),
        (AuditEvent, {"occurred_at_from_0": "2026-01-01", "occurred_at_from_1": ""}),
        (User, {"is_active__exact": "1"}),
        (User, {"groups__id__exact": "1"}),
    ]
    for model, query in queries:
        answer = console.get(list_url(model), query)
        assert answer.status_code == 200, (model, query)
        assert answer.context["cl"].has_active_filters or model is CreditGrant, query


@pytest.mark.slow
def test_every_link_to_a_list_that_pages_show_opens(console: Client, samples: SampleRows) -> None:
    seen: set[str] = set()
    for model in MODELS:
        for address in (page(samples[model]), list_url(model)):
            text = console.get(address, follow=True).content.decode()
            links = [
                link
                for link in re.findall(r'href="([^"]*\?[^"]+)"', text)
                if "admin/" in link or link[0] == "?"
            ]
            seen |= {urljoin(address, html.unescape(link)) for link in links}

    assert len(seen) > 50
    for link in sorted(seen):
        assert console.get(link, follow=True).status_code == 200, link


def test_a_search_of_many_words_finds_nothing_and_says_so(console: Client, samples: SampleRows) -> None:
    for words in ("a " * 2_000, "a" * 3_000):
        answer = console.get(list_url(ProjectKey), {"q": words})
        assert answer.status_code == 200
        assert "Search for at most" in answer.content.decode()
        assert list(answer.context["cl"].result_list) == []


def test_an_autocomplete_of_many_words_finds_nothing(console: Client, samples: SampleRows) -> None:
    field = {"app_label": "organization", "model_name": "projectkey", "field_name": "project"}

    few = console.get("/admin/autocomplete/", {**field, "term": "acme"})
    many = console.get("/admin/autocomplete/", {**field, "term": "acme " * 400})

    assert len(few.json()["results"]) == 1
    assert many.json()["results"] == []
