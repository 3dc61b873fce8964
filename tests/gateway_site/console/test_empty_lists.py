"""Lists with nothing in them say what they are for, and what to do next."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Group, User

from billing.models import CreditGrant
from organization.models import Organization, ProjectKey
from tests.factories import make_project_key
from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.factories import list_url, signed_in, someone

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
NEVER_EMPTY = {User, Group}


def test_an_empty_list_says_what_it_is_for_and_how_to_begin() -> None:
    page = owner().get(list_url(ProjectKey)).content.decode()

    assert "No API keys yet" in page
    assert "lets an application of a project use models" in page
    assert "create_project_key PROJECT NAME" in page
    assert f'href="{list_url(ProjectKey, "add")}"' in page


@pytest.mark.parametrize(
    "model", [each for each in site._registry if each not in NEVER_EMPTY], ids=lambda each: each.__name__
)
def test_every_list_says_what_it_is_for(model: Any) -> None:
    page = site._registry[model]
    assert getattr(page, "about", ""), model
    assert getattr(page, "first_step", ""), model


def test_nothing_for_a_filter_is_another_thing_than_nothing_yet(project: Any) -> None:
    make_project_key(project)
    client = owner()

    for query in ("?q=zzzz", "?status=revoked"):
        page = client.get(list_url(ProjectKey) + query).content.decode()
        assert "Nothing for this filter" in page
        assert "yet" not in page.split('id="empty-list"')[1].split("</div>")[0]
        assert 'href="?"' in page


def test_credit_needs_an_organization_first() -> None:
    new, address = list_url(Organization, "add"), list_url(CreditGrant, "add")
    shown = {role: signed_in(someone(role)).get(address).content.decode() for role in ("Owner", "Billing")}

    assert all("No organizations yet" in page and "<datalist" not in page for page in shown.values())
    assert f'href="{new}"' in shown["Owner"]
    assert f'href="{new}"' not in shown["Billing"]
    Organization.objects.create(name="Acme")
    assert '<option value="Acme">' in signed_in(someone("Billing")).get(address).content.decode()


def test_who_may_not_add_is_not_told_to() -> None:
    page = signed_in(someone("Read-only")).get(list_url(ProjectKey)).content.decode()

    assert "No API keys yet" in page
    assert f'href="{list_url(ProjectKey, "add")}"' not in page
