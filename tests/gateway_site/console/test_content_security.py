"""Every page says which scripts it has, and has no other."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from gateway_site.console.roles import READER
from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.factories import (
    MODELS,
    SampleRows,
    action_url,
    every_action,
    list_url,
    page,
    signed_in,
    someone,
)
from tests.harness.client import exchange

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


class InlineScripts(HTMLParser):
    """Scripts that are written into a page. Data for a script is none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.found.append(self.get_starttag_text() or tag)
        for name, value in attributes:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.found.append(f"{tag} {name}={value}")


def directives(answer: Any) -> dict[str, str]:
    policy = answer.headers.get("Content-Security-Policy") or answer.headers["content-security-policy"]
    return {name: sources for name, _, sources in (each.partition(" ") for each in policy.split("; "))}


def assert_strict(answer: Any, *, scripts: str = "'self' 'unsafe-eval'") -> None:
    said = directives(answer)
    assert said["default-src"] == "'none'"
    assert said["script-src"] == scripts
    assert said["connect-src"] == said["form-action"] == said["font-src"] == "'self'"
    assert said["base-uri"] == said["frame-ancestors"] == "'none'"
    body = answer.content if isinstance(answer, HttpResponse) else answer.body
    assert InlineScripts(body.decode()).found == []


@pytest.mark.slow
def test_every_page_of_a_row_and_of_a_list(samples: SampleRows) -> None:
    client = owner()
    for model in MODELS:
        for path in (list_url(model), page(samples[model]), page(samples[model], "history")):
            assert_strict(client.get(path))
        shown = client.get(list_url(model, "add"))
        assert shown.status_code in (200, 403)
        assert_strict(shown)


@pytest.mark.slow
def test_every_page_that_asks_before_it_acts_and_what_it_answers(samples: SampleRows) -> None:
    client = owner()
    for model, action in every_action():
        shown = client.get(action_url(samples[model], action.name))
        assert_strict(shown)


def test_a_key_that_is_shown_once_is_for_no_cache(samples: SampleRows) -> None:
    answer = owner().post(action_url(samples.customer.key, "rotate"), {"confirmed": "yes"})

    assert_strict(answer)
    assert "gwk_" in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]


@pytest.mark.parametrize(
    "path", ["", "costs/", "prices/", "playground/", "tail/", "password_change/", "search/?s=a"]
)
def test_pages_without_a_row_have_a_strict_policy(samples: SampleRows, path: str) -> None:
    answer = owner().get(f"/admin/{path}")

    assert answer.status_code == 200
    assert_strict(answer)
    assert "no-store" in answer.headers["Cache-Control"]


def test_pages_for_whoever_is_refused(samples: SampleRows) -> None:
    reader = signed_in(someone(READER))
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(someone(READER))
    answers = {
        "log-in": Client().get("/admin/login/"),
        "forbidden": reader.get(action_url(samples.customer.key, "revoke")),
        "missing": reader.get("/admin/nowhere/"),
        "no token": strict.post("/admin/logout/"),
        "no token, a stranger": Client(enforce_csrf_checks=True).post("/admin/login/"),
    }
    for _ in range(6):
        answers["too many"] = Client().post("/admin/login/", {"username": "ada", "password": "wrong"})

    assert {name: answer.status_code for name, answer in answers.items()} == {
        "log-in": 200,
        "forbidden": 403,
        "missing": 404,
        "no token": 403,
        "no token, a stranger": 403,
        "too many": 429,
    }
    for answer in answers.values():
        assert_strict(answer)


def test_the_500_page_has_a_strict_policy(samples: SampleRows, monkeypatch: pytest.MonkeyPatch) -> None:
    client = owner()
    client.raise_request_exception = False

    def broken(*_: Any, **__: Any) -> HttpResponse:
        raise RuntimeError

    monkeypatch.setattr("gateway_site.console.playground.views._servable_models", broken)

    answer = client.get("/admin/playground/")

    assert answer.status_code == 500
    assert_strict(answer)


def test_the_documentation_has_no_use_for_eval() -> None:
    assert_strict(exchange("GET", "/docs/"), scripts="'self'")


def test_what_is_not_a_page_may_do_nothing_in_a_browser() -> None:
    for path in ("/v1/organization/admin_api_keys", "/openapi.json", "/healthz", "/nowhere"):
        answer = exchange("GET", path)
        assert directives(answer) == {"default-src": "'none'", "frame-ancestors": "'none'"}, path
        assert answer.headers["x-content-type-options"] == "nosniff"
