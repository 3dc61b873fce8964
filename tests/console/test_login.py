"""People log in to the console; whoever guesses has to wait."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from organization.models import AuditEvent

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
PASSWORD, WRONG = "correct horse battery", "wrong horse battery"
LOGIN = "/admin/login/"


@pytest.fixture(autouse=True)
def ada() -> Any:
    return get_user_model().objects.create_superuser("ada", password=PASSWORD)


def log_in(name: str = "ada", password: str = PASSWORD, address: str = "10.0.0.1", **more: str) -> Any:
    client = Client(REMOTE_ADDR=address, **more)  # type: ignore[arg-type]
    return client.post(LOGIN, {"username": name, "password": password})


def statuses(times: int, **options: str) -> list[int]:
    return [log_in(password=WRONG, **options).status_code for _ in range(times)]


def test_it_works(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway_site.login")

    answer = log_in()

    assert answer.status_code == 302
    assert answer.headers["Location"] == reverse("admin:index")
    event = AuditEvent.objects.get(action="user.log_in")
    assert (event.actor_label, event.details) == ("ada", {"address": "10.0.0.1"})
    assert "log-in of ada" in caplog.text
    assert PASSWORD not in caplog.text


def test_the_cookie_is_kept_from_scripts_and_lasts_for_half_a_day() -> None:
    cookie = log_in().cookies["sessionid"]

    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert cookie["max-age"] == 12 * 3600


def test_a_wrong_password_is_counted_and_recorded_without_it(caplog: pytest.LogCaptureFixture) -> None:
    answer = log_in(password=WRONG)
    log_in(name=WRONG, password=WRONG)  # typed into the wrong field

    assert answer.status_code == 200
    assert "log-in of ada to the console from 10.0.0.1 failed" in caplog.text
    assert "an unknown name" in caplog.text
    assert WRONG not in caplog.text
    assert not AuditEvent.objects.filter(action="user.log_in").exists()


def test_after_five_the_right_one_is_refused_too() -> None:
    assert statuses(5) == [200] * 5

    answer = log_in()

    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 300
    assert "too many attempts" in answer.content.decode()
    assert "sessionid" not in answer.cookies
    assert "no-store" in answer.headers["Cache-Control"]


def test_it_makes_no_difference_whether_there_is_such_a_person() -> None:
    assert statuses(7, name="nobody") == statuses(7) == [200] * 5 + [429] * 2


@pytest.mark.parametrize("spelling", ["Ada", " ada ", "ADA", "\uff41da"])
def test_another_spelling_is_the_same_name(spelling: str) -> None:
    statuses(5)

    assert log_in(name=spelling).status_code == 429


def test_another_person_and_another_address_do_not_wait() -> None:
    get_user_model().objects.create_superuser("bob", password=PASSWORD)
    statuses(6)

    assert log_in(name="bob").status_code == 302
    assert log_in(address="10.0.0.2").status_code == 302


def test_an_address_that_tries_many_names_waits(settings: Any) -> None:
    settings.GATEWAY_LOGIN_TRIES_PER_ADDRESS = 8
    tried = [log_in(name=f"guess{n}", password=WRONG).status_code for n in range(10)]

    assert tried == [200] * 8 + [429] * 2
    assert log_in().status_code == 429
    assert log_in(address="10.0.0.2").status_code == 302


def test_an_address_is_its_network_where_there_are_too_many() -> None:
    for number in range(5):
        log_in(password=WRONG, address=f"2001:db8::{number}")

    assert log_in(address="2001:db8::ffff:1").status_code == 429
    assert log_in(address="2001:db8:0:1::1").status_code == 302


def test_a_name_that_many_addresses_try_waits(settings: Any) -> None:
    settings.GATEWAY_LOGIN_TRIES_PER_NAME = 8
    tried = [log_in(password=WRONG, address=f"10.0.1.{n}").status_code for n in range(10)]

    assert tried == [200] * 8 + [429] * 2
    assert log_in(address="10.0.2.1").status_code == 429


def test_a_forged_address_is_not_believed() -> None:
    for number in range(5):
        log_in(password=WRONG, HTTP_X_FORWARDED_FOR=f"192.0.2.{number}")

    assert log_in(HTTP_X_FORWARDED_FOR="192.0.2.99").status_code == 429


def test_logging_in_rightly_is_not_counted() -> None:
    assert [log_in().status_code for _ in range(8)] == [302] * 8
    assert statuses(5) == [200] * 5


def test_looking_at_the_page_is_not_counted() -> None:
    for _ in range(8):
        assert Client(REMOTE_ADDR="10.0.0.1").get(LOGIN).status_code == 200

    assert log_in().status_code == 302


def test_a_login_without_its_token_is_refused() -> None:
    client = Client(enforce_csrf_checks=True)

    assert client.post(LOGIN, {"username": "ada", "password": PASSWORD}).status_code == 403


def test_people_change_their_password_and_log_out(ada: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway_site.login")
    client, elsewhere = Client(), Client()
    client.force_login(ada)
    elsewhere.force_login(ada)
    form = reverse("admin:password_change")
    assert client.get(form).status_code == 200
    fresh = "another horse battery"

    short = client.post(form, {"old_password": PASSWORD, "new_password1": "short", "new_password2": "short"})
    client.post(form, {"old_password": PASSWORD, "new_password1": fresh, "new_password2": fresh})

    assert "too short" in short.content.decode()
    assert log_in(password=fresh).status_code == 302
    assert elsewhere.get(reverse("admin:index")).status_code == 302  # logged out everywhere else
    assert client.get("/admin/logout/").status_code == 405
    client.post("/admin/logout/")
    assert "log-out of ada" in caplog.text
    assert client.get(reverse("admin:index")).status_code == 302
