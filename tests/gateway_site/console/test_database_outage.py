"""The console while the database does not answer: a page that says so, whoever noticed first."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import InterfaceError, OperationalError
from django.test import Client
from psycopg_pool import PoolTimeout

from tests.gateway_site.console.clients import owner

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def console() -> Client:
    made = owner()
    made.raise_request_exception = False
    return made


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, PoolTimeout])
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (SessionMiddleware, "process_request"),
        (AuthenticationMiddleware, "process_request"),
        (SessionStore, "load"),
    ],
)
def test_a_page_says_that_the_database_does_not_answer(
    console: Client, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, error: type[Exception]
) -> None:
    def away(*args: Any, **options: Any) -> Any:
        raise error("connection refused")

    monkeypatch.setattr(place, name, away)

    answer = console.get("/admin/")

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert b"The database does not answer" in answer.content
    assert b"connection refused" not in answer.content


def test_a_session_that_cannot_be_saved_is_no_mistake_of_the_person(
    console: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **options: Any) -> Any:
        raise OperationalError("connection refused")

    settings.SESSION_SAVE_EVERY_REQUEST = True
    monkeypatch.setattr("django.contrib.sessions.models.Session.save", away)

    answer = console.get("/admin/")

    assert answer.status_code == 503
