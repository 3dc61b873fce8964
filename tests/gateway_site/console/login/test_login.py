"""People log in to the console; whoever guesses has to wait."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from gateway_site.console.login import password_check_slots
from organization.models import AuditEvent
from tests.harness.client import exchange

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


def test_logging_in_leads_to_the_overview_and_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway_site.console.login.views")

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


def test_after_five_wrong_passwords_the_right_one_is_refused_too() -> None:
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
    caplog.set_level(logging.INFO, "gateway_site.console.login.views")
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


def test_a_name_or_password_beyond_its_bound_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("the password was hashed")

    monkeypatch.setattr("django.contrib.auth.hashers.MD5PasswordHasher.encode", never)
    for name, password in (("a" * 151, PASSWORD), ("\ufdfa" * 1_000_000, PASSWORD), ("ada", "a" * 4_097)):
        answer = log_in(name=name, password=password)
        assert answer.status_code == 200
        assert "at most" in answer.content.decode()


def test_a_log_in_has_a_body_of_some_kilobytes() -> None:
    form = [("Content-Type", "application/x-www-form-urlencoded")]

    answer = exchange("POST", LOGIN, form, [b"username=" + b"%EF%B7%BA" * 100_000])

    assert answer.status == 413
    assert "16384" in answer.error["message"].replace(",", "")
    for path in ("/admin/", "/admin/organization/project/add/"):
        assert exchange("POST", path, form, [b"a" * 600_000] * 2).status == 413
        assert exchange("POST", path, form, [b"a" * 600_000]).status in (302, 403)


def test_an_address_to_go_to_is_short() -> None:
    assert Client().get(LOGIN, {"next": "/admin/" + "a" * 2_048}).status_code == 400
    assert Client().post(LOGIN, {"next": "/admin/" + "a" * 2_048}).status_code == 400
    assert Client().get(LOGIN, {"next": "/admin/costs/"}).status_code == 200


def test_no_more_passwords_are_checked_at_once_than_the_machine_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_check_slots, "WAIT_SECONDS", 0.05)
    with password_check_slots.password_check_slot(), password_check_slots.password_check_slot():
        answers = [log_in() for _ in range(6)]

    assert [answer.status_code for answer in answers] == [503] * 6
    assert answers[0].headers["Retry-After"] == "5"
    assert "was not checked" in answers[0].content.decode()
    assert log_in().status_code == 302, "what was not tried is not counted"


def test_no_more_people_wait_for_their_check_than_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_check_slots, "WAIT_SECONDS", 60)
    with ExitStack() as held:
        held.enter_context(password_check_slots.password_check_slot())
        held.enter_context(password_check_slots.password_check_slot())
        for _ in range(password_check_slots.MOST_WAITING):
            assert password_check_slots._admitted.acquire(blocking=False)
            held.callback(password_check_slots._admitted.release)

        assert log_in().status_code == 503, "at once"


def test_guesses_at_the_old_password_are_counted(ada: Any) -> None:
    client = Client()
    client.force_login(ada)
    form = reverse("admin:password_change")
    fresh = "another horse battery"
    weak = {"old_password": PASSWORD, "new_password1": "short", "new_password2": "short"}

    for _ in range(8):
        assert client.post(form, weak).status_code == 200, "the old one was right"
    for _ in range(5):
        assert client.post(form, {**weak, "old_password": WRONG}).status_code == 200
    typed = {"old_password": PASSWORD, "new_password1": fresh, "new_password2": fresh}
    assert client.post(form, typed).status_code == 429
    assert log_in().status_code == 302


# --- who logged in from here before --------------------------------------------------------------------


def try_from(client: Client, password: str = PASSWORD, name: str = "ada") -> int:
    return client.post(LOGIN, {"username": name, "password": password}).status_code


def used_up(settings: Any) -> None:
    """Somebody tries the name from everywhere until it has to wait."""
    settings.GATEWAY_LOGIN_TRIES_PER_NAME = 8
    assert log_in(password=WRONG, address="10.9.0.1").status_code == 200
    for number in range(9):
        log_in(password=WRONG, address=f"10.9.1.{number}")
    assert log_in(password=WRONG, address="10.9.2.1").status_code == 429


def test_strangers_do_not_lock_a_person_out_of_their_own_browser(settings: Any) -> None:
    browser = Client(REMOTE_ADDR="10.0.0.1")
    assert try_from(browser) == 302
    browser.post("/admin/logout/")
    used_up(settings)

    assert log_in(address="10.0.0.2").status_code == 429, "the right password, from elsewhere"
    assert try_from(browser) == 302
    assert try_from(browser, name="bob") == 200, "other names are counted as ever"
    cookie = browser.cookies["known_device"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/admin/login/")


def test_a_known_browser_has_as_few_tries(settings: Any) -> None:
    browser = Client(REMOTE_ADDR="10.0.0.1")
    try_from(browser)
    used_up(settings)

    assert [try_from(browser, WRONG) for _ in range(6)] == [200] * 5 + [429]
    assert try_from(browser) == 429
    browser.defaults["REMOTE_ADDR"] = "10.0.0.77"
    assert try_from(browser) == 429, "wherever the cookie is taken to"


def test_a_browser_is_known_to_its_own_person_with_their_present_password(settings: Any, ada: Any) -> None:
    get_user_model().objects.create_superuser("bob", password=PASSWORD)
    browser, other = Client(REMOTE_ADDR="10.0.0.1"), Client(REMOTE_ADDR="10.0.0.2")
    try_from(browser)
    try_from(other, name="bob")
    used_up(settings)
    assert try_from(other) == 429, "bob's browser, ada's name"
    forged = Client(REMOTE_ADDR="10.0.0.3")
    forged.cookies["known_device"] = browser.cookies["known_device"].value[:-1] + "A"
    assert try_from(forged) == 429

    ada.set_password("another horse battery")
    ada.save()

    assert try_from(browser, "another horse battery") == 429, "the cookie was for the old password"
