"""Names are written by customers: on every page of the console they are text and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site
from django.urls import reverse

from organization.models import ProjectKey
from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.factories import (
    MODELS,
    SampleRows,
    action_url,
    every_action,
    form_of,
    list_url,
    make_sample_rows,
    page,
)

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
NAME = """<script>alert(1)</script>"><img src=x onerror=alert(1)>'};alert(1)//{{7*7}}"""
WORDS = f"=HYPERLINK(1)\u202e {NAME}"


@pytest.fixture
def samples() -> SampleRows:
    return make_sample_rows(NAME, WORDS)


def assert_inert(answer: Any, about: object) -> None:
    text = answer.content.decode()
    assert answer.status_code == 200, about
    assert "<script>alert(1)" not in text, about
    assert "<img src=x" not in text, about
    assert "//49" not in text, about


@pytest.mark.slow
def test_hostile_names_are_inert_on_every_list_and_page(samples: SampleRows) -> None:
    client = owner()

    for model in MODELS:
        assert_inert(client.get(list_url(model)), model)
        assert_inert(client.get(page(samples[model])), model)
    assert_inert(client.get(reverse("admin:index")), "overview")
    assert_inert(client.get(list_url(ProjectKey), {"q": NAME}), "a search")


@pytest.mark.slow
def test_hostile_names_are_inert_on_every_confirmation_page(samples: SampleRows) -> None:
    client = owner()

    for model, action in every_action():
        if not action.is_immediate:
            assert_inert(client.get(action_url(samples[model], action.name)), action.name)
            if action.is_reviewed:
                answer = client.post(
                    action_url(samples[model], action.name), {**form_of(action), "confirmed": ""}
                )
                assert_inert(answer, f"{action.name}, reviewed")


def test_hostile_names_are_inert_on_the_page_of_a_secret_and_in_messages(samples: SampleRows) -> None:
    client, yes = owner(), {"confirmed": "yes"}

    assert_inert(client.post(action_url(samples[ProjectKey], "rotate"), yes), "secret")
    assert_inert(client.post(action_url(samples[ProjectKey], "suspend"), yes, follow=True), "message")
    typed = client.get(reverse("admin:billing_creditgrant_add"), {"organization": WORDS})
    assert_inert(typed, "what was typed")


def test_every_registered_model_is_covered() -> None:
    assert set(site._registry) == set(MODELS)
