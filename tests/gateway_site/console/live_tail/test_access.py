"""Who may watch the live tail: staff with the permission, from the console, for as long as they have it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from gateway_site.console.live_tail import consumer
from tests.gateway_site.console.clients import customer, owner, person
from tests.gateway_site.console.live_tail.socket_client import Socket, off_loop, play

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("stranger", ["nobody", "customer", "staff", "inactive"])
def test_a_stranger_is_refused(stranger: str) -> None:
    clients = {"nobody": lambda: None, "customer": customer, "inactive": owner}
    client = clients.get(stranger, lambda: person("organization.view_project"))()
    users = get_user_model().objects
    if stranger == "inactive":
        users.update(is_active=False)
    if stranger == "customer":  # the permission alone is not enough
        users.get().user_permissions.set(Permission.objects.filter(codename="view_activity"))

    async def scenario() -> None:
        assert not await Socket(client).open()

    play(scenario)


def test_one_permission_to_look_is_enough() -> None:
    reader = person("inference.view_activity")

    async def scenario() -> None:
        socket = Socket(reader)
        assert await socket.open()
        await socket.leave()

    play(scenario)


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        ("http://testserver", True),
        (None, False),
        ("null", False),
        ("http://evil.example", False),
        ("http://testserver.evil.example", False),
        ("http://testserver:3000", False),
        ("https://testserver", False),
        ("https://console.example.com", True),
        ("http://console.example.com", False),
        ("https://a.example.org", True),
        ("https://example.org.evil.example", False),
    ],
)
def test_a_socket_that_another_site_opens_is_refused(
    settings: Any, origin: str | None, is_ours: bool
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example.com", "https://*.example.org"]
    ada = owner()

    async def scenario() -> None:
        socket = Socket(ada, origin=origin)
        assert await socket.open() is is_ours
        await socket.leave()

    play(scenario)


def test_behind_a_proxy_that_ends_tls_the_origin_is_https(settings: Any) -> None:
    settings.GATEWAY_HTTPS = True
    ada = owner()

    async def scenario() -> None:
        assert not await Socket(ada, origin="http://testserver").open()
        socket = Socket(ada, origin="https://testserver")
        assert await socket.open()
        await socket.leave()

    play(scenario)


def deactivate(client: Client) -> None:
    get_user_model().objects.update(is_active=False)


def demote(client: Client) -> None:
    get_user_model().objects.get().user_permissions.clear()


def change_password(client: Client) -> None:
    user = get_user_model().objects.get()
    user.set_password("another")
    user.save(update_fields=["password"])


def log_out(client: Client) -> None:
    client.logout()


@pytest.mark.parametrize("lose_the_right", [deactivate, demote, change_password, log_out])
def test_who_loses_the_right_loses_the_socket(monkeypatch: pytest.MonkeyPatch, lose_the_right: Any) -> None:
    monkeypatch.setattr(consumer, "HEARTBEAT_SECONDS", 0.05)
    reader = person("inference.view_activity")

    async def scenario() -> None:
        socket = Socket(reader)
        await socket.open()
        # First the line is told to be up, more than once.
        assert (await socket.message())["rows"] == []
        assert (await socket.message())["rows"] == []
        await off_loop(lose_the_right, reader)
        assert await socket.close_code() == consumer.NOT_ALLOWED
        await socket.leave()

    play(scenario)


def test_without_a_database_nobody_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "HEARTBEAT_SECONDS", 0.05)
    ada = owner()

    async def fail(scope: Any) -> None:
        raise OperationalError

    async def scenario() -> None:
        socket = Socket(ada)
        await socket.open()
        monkeypatch.setattr(consumer, "look_up_user", fail)
        assert await socket.close_code() == consumer.TRY_AGAIN_LATER
        await socket.leave()
        assert not await Socket(ada).open()

    play(scenario)


@pytest.mark.parametrize(
    "path", ["/", "/admin/tail", "/admin/tail/socket/", "//admin/tail/socket", "/v1/realtime"]
)
def test_there_is_no_other_socket(path: str) -> None:
    ada = owner()

    async def scenario() -> None:
        assert not await Socket(ada, path=path).open()

    play(scenario)


def test_the_page_opens_for_those_who_may_look(django_assert_max_num_queries: Any) -> None:
    address = reverse("live-tail")
    assert address == "/admin/tail/"
    reader = person("inference.view_activity")

    with django_assert_max_num_queries(8):
        shown = reader.get(address)

    assert shown.status_code == 200
    assert 'data-socket="/admin/tail/socket"' in shown.content.decode()
    assert Client().get(address).status_code == 302
    assert customer().get(address).status_code == 302
    assert owner().post(address).status_code == 405


def test_the_page_is_refused_to_staff_who_may_not_look() -> None:
    assert person("inference.use_playground").get(reverse("live-tail")).status_code == 403
