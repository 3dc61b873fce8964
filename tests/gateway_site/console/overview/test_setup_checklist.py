"""Somebody opens a new console: it says what to do, until the first request was made."""

from __future__ import annotations

import json
import shlex
from typing import Any

from django.test import Client
from django.urls import reverse

from billing.prices.card import PriceCard
from inference.models import Backend, CatalogModel, Deployment
from tests.billing.factories import make_customer, version_of
from tests.gateway_site.console.activity_rows import requests
from tests.gateway_site.console.clients import owner, person


def seen(client: Client) -> Any:
    page = client.get("/admin/")
    assert page.status_code == 200
    return page


def test_an_empty_console_says_what_to_do_first(db: None) -> None:
    page = seen(owner())

    html = page.content.decode()
    for name in (
        "organization_organization",
        "inference_backend",
        "billing_creditgrant",
        "organization_project",
    ):
        assert f'href="{reverse(f"admin:{name}_add")}"' in html
    assert not page.context["setup"].curl


def test_what_is_done_is_ticked_and_the_request_can_be_pasted(db: None) -> None:
    make_customer(credit=1_000)
    model = CatalogModel.objects.create(id="it's/a model")
    version_of(PriceCard.flat(prompt=1, completion=1), model.pk)
    backend = Backend.objects.create(name="sim", kind="simulator")
    Deployment.objects.create(model=model, backend=backend, upstream_id="echo")

    page = seen(owner())

    setup = page.context["setup"]
    assert setup.is_ready
    words = shlex.split(setup.curl.split("; ")[-1])
    assert words[:2] == ["curl", "http://testserver/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == "it's/a model"


def test_the_steps_are_gone_after_the_first_request(db: None) -> None:
    requests(make_customer(), days_ago=90, requests=1)

    assert seen(owner()).context["setup"] is None


def test_a_reader_is_told_the_steps_and_offered_none(db: None) -> None:
    page = seen(person("organization.view_organization"))

    assert all(not step.url for step in page.context["setup"].steps)
