"""The sidebar and the command palette show each person what they can open."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import resolve, reverse

from gateway_site.console import search
from gateway_site.console.navigation import NAVIGATION
from organization.models import Organization, Project
from tests.factories import make_project_key
from tests.gateway_site.console.clients import owner, person

EVERY_PAGE = [item for group in NAVIGATION for item in group["items"]]
# Where what is here stands in the sidebar under another one's name.
WITHOUT_A_PLACE: set[str] = set()


def shown_to(client: Client) -> set[str]:
    groups = client.get("/admin/").context["sidebar_navigation"]
    return {item["title"] for group in groups for item in group["items"] if item["has_permission"]}


def found_by(client: Client, words: str) -> list[tuple[str, str]]:
    page: Any = client.get("/admin/search/", {"s": words, "extended": "1"})
    assert page.status_code == 200
    return [(str(each.title), str(each.link)) for each in page.context["results"]] if page.context else []


@pytest.mark.slow
def test_an_owner_is_shown_every_page_and_all_open(db: None) -> None:
    ada = owner()

    assert shown_to(ada) == {item["title"] for item in EVERY_PAGE}
    for item in EVERY_PAGE:
        assert ada.get(str(item["link"])).status_code == 200, item["title"]


def test_every_list_has_its_place_in_the_sidebar() -> None:
    links = {str(item["link"]) for item in EVERY_PAGE}
    lists = {
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in site._registry
    }

    assert lists - links == WITHOUT_A_PLACE


@pytest.mark.parametrize("item", EVERY_PAGE[1:], ids=lambda item: item["title"])
def test_a_person_is_shown_what_they_can_open_and_nothing_else(db: None, item: dict[str, Any]) -> None:
    stranger = person()

    assert stranger.get(str(item["link"])).status_code == 403
    assert shown_to(stranger) == {"Overview"}


def test_one_permission_shows_its_pages(db: None) -> None:
    assert shown_to(person("billing.view_costline")) == {"Overview", "Costs", "Cost lines"}


def test_no_page_comes_from_elsewhere() -> None:
    for item in EVERY_PAGE:
        assert str(item["link"]).startswith("/admin/")
        assert resolve(str(item["link"]))


def test_the_palette_finds_pages_and_things(project: Project) -> None:
    key, ada = make_project_key(project).key, owner()

    assert ("Playground", "/admin/playground/") in found_by(ada, "playgr")
    assert ("Acme", reverse("admin:organization_organization_change", args=[project.organization_id])) in (
        found_by(ada, "acm")
    )
    assert [link for _, link in found_by(ada, str(key.pk))] == [
        reverse("admin:organization_projectkey_change", args=[key.pk])
    ]
    assert found_by(ada, "no such thing anywhere") == []


def test_the_palette_finds_nothing_for_a_stranger(project: Project) -> None:
    key, stranger = make_project_key(project).key, person("billing.view_account")

    assert found_by(stranger, "acm") == []
    assert found_by(stranger, str(key.pk)) == []
    assert [title for title, _ in found_by(stranger, "credit")] == ["Credit"]


def test_the_palette_finds_few_of_many(db: None) -> None:
    for number in range(20):
        Organization.objects.create(name=f"Customer {number}")

    assert len(found_by(owner(), "customer")) == search.MOST_ROWS
