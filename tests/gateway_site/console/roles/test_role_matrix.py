"""
The role matrix: every visitor at every page of the console, who opens it and who posts to it directly.

What the table of roles does not allow is refused and writes nothing. The short form decides pages and does
not draw them. The long form draws them, and asks with every other method too:

    MATRIX=full python -m pytest tests/gateway_site/console/roles/test_role_matrix.py
"""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.template.response import SimpleTemplateResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gateway_site.console import roles
from tests.gateway_site.console.clients import customer, owner
from tests.gateway_site.console.factories import SampleRows, signed_in, someone
from tests.gateway_site.console.live_tail.socket_client import Socket, play
from tests.gateway_site.console.roles.page_table import DOORS, May, Page, every_page, served_patterns

IS_FULL = os.environ.get("MATRIX") == "full"
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
OTHER_METHODS = ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
# What a page writes for itself: that somebody is logged in, and what to tell them on the next page.
WRITES = re.compile(r'^\s*(INSERT|UPDATE|DELETE|REPLACE)\b(?!.*"django_session")', re.IGNORECASE)
NOBODY: May = lambda permission: False  # noqa: E731


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes nearly all of the time, and so does finding out what the sidebar would show."""
    if not IS_FULL:
        monkeypatch.setattr(SimpleTemplateResponse, "rendered_content", "")
        monkeypatch.setattr(site, "each_context", lambda request: {})


def visitor(name: str) -> tuple[Client, May]:
    """Somebody logged in, and what the table of roles says of them."""
    if name == "superuser":
        return owner(), lambda permission: True
    if name == "no role":
        guest = get_user_model().objects.create_user("no role", is_staff=True)
        return signed_in(guest), NOBODY
    allowed = roles.permissions_of(name)
    return signed_in(someone(name)), lambda permission: permission in allowed


STAFF = [*roles.ROLES, "superuser", "no role"]


def test_every_url_of_the_console_has_its_row(samples: SampleRows) -> None:
    assert set(samples.rows) == set(site._registry)
    assert served_patterns() == {page.pattern for page in every_page(samples)} | DOORS


@pytest.mark.slow
@pytest.mark.parametrize("name", STAFF)
def test_a_visitor_opens_what_their_role_may_see(samples: SampleRows, name: str) -> None:
    client, may = visitor(name)
    wrong = {}
    for page in {page.address: page for page in reversed(every_page(samples))}.values():
        status = client.get(page.address).status_code
        # What is for a POST alone says so, to those who may post.
        expected = (403, 405) if page.to_get is None else page.expected("GET", may)
        if status not in expected:
            wrong[page.address] = (status, expected)

    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAFF)
def test_a_direct_post_does_what_the_role_may_do_and_nothing_else(samples: SampleRows, name: str) -> None:
    client, may = visitor(name)
    wrong = {}
    for page in every_page(samples):
        status, written = post(client, page)
        expected = (403, 405) if page.to_post is None else page.expected("POST", may)
        if status not in expected or (written and page.is_refused("POST", may)):
            wrong[f"{page.address} {page.fields.get('action', '')}"] = (status, expected, written)

    assert wrong == {}


def post(client: Client, page: Page) -> tuple[int, list[str]]:
    """The status, and the statements that wrote anything. It is undone."""
    undone = transaction.savepoint()
    with CaptureQueriesContext(connection) as made:
        status = client.post(page.address, page.fields).status_code
    transaction.savepoint_rollback(undone)
    return status, writes(made)


def writes(made: CaptureQueriesContext) -> list[str]:
    return [each["sql"][:200] for each in made if WRITES.match(each["sql"])]


@pytest.mark.slow
@pytest.mark.parametrize("stranger", ["anonymous", "customer"])
def test_a_stranger_is_sent_to_the_log_in_from_everywhere(samples: SampleRows, stranger: str) -> None:
    client = Client() if stranger == "anonymous" else customer()
    wrong: dict[str, Any] = {}
    for page in every_page(samples):
        for method in ("GET", "POST"):
            with CaptureQueriesContext(connection) as made:
                answer = client.generic(method, page.address)
            is_sent_away = answer.status_code == 302 and "/admin/login/" in answer.headers["Location"]
            if not is_sent_away or writes(made):
                wrong[f"{method} {page.address}"] = answer.status_code

    assert {each.split(" ")[1] for each in wrong} <= {"/admin/jsi18n/"}  # the words of widgets are no secret


@pytest.mark.skipif(not IS_FULL, reason="MATRIX=full")
@pytest.mark.parametrize("name", ["superuser", roles.READER])
def test_no_other_method_writes_anything(samples: SampleRows, name: str) -> None:
    client, _ = visitor(name)
    pages = {page.address: page for page in every_page(samples)}.values()
    for page, method in itertools.product(pages, OTHER_METHODS):
        body = "&".join(f"{field}={value}" for field, value in page.fields.items())
        with CaptureQueriesContext(connection) as made:
            client.generic(method, page.address, body, content_type="application/x-www-form-urlencoded")
        assert writes(made) == [], (method, page)


def test_the_matrix_sees_what_is_written(samples: SampleRows) -> None:
    """The control: the same post by one who may."""
    client, may = visitor(roles.OWNER)
    [page] = [page for page in every_page(samples) if page.address.endswith("/do/revoke/")][:1]

    status, written = post(client, page)

    assert (status,) == page.expected("POST", may)
    assert any("organization_auditevent" in each for each in written)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["anonymous", "customer", *STAFF])
def test_who_may_open_the_live_tails_socket(name: str) -> None:
    client: Client | None = None
    may = NOBODY
    if name == "customer":
        client = customer()
    elif name != "anonymous":
        roles.apply(apps)
        client, may = visitor(name)

    async def scenario() -> None:
        socket = Socket(client)
        assert await socket.open() == may("inference.view_activity")
        if may("inference.view_activity"):
            await socket.leave()

    play(scenario)
