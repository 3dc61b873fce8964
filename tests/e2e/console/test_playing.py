"""An operator tries a model in a real browser, and sees the request go by in the live tail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from playwright.sync_api import Page

from billing.models import Reservation
from inference.models import Activity
from organization.models import AuditEvent, ProjectKey
from policies import services as policy_services
from tests.conftest import SOMEONE
from tests.e2e.console_driver import CHROMIUM, DARK, LIGHT, NARROW, WIDE, Console, browser, new_console
from tests.e2e.waiting import until
from tests.inference.chat_cast import Gateway
from tests.live import ROOT, LiveServer, live_server

pytestmark = [
    pytest.mark.one_database,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH"),
]
PASSWORD = "correct horse battery"
ATTACK = "hello <img src=x onerror=window.pwned=1> friend"


@pytest.fixture
def server(gateway: Gateway, process_environment: dict[str, str]) -> Iterator[LiveServer]:
    for name in ("echo", "thinker", "paced-600x30"):
        gateway.simulate(name)
    policy = policy_services.create_policy(
        organization=gateway.project.organization,
        name="Greetings",
        rule='Does the text contain "hello"?',
        actor=SOMEONE,
    )
    policy_services.publish_policy(policy=policy, mode="monitoring", actor=SOMEONE)
    users = get_user_model().objects
    users.create_superuser("ada", password=PASSWORD)
    reader = users.create_user("rita", password=PASSWORD, is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_activity"))
    # The settings that the server has, and so its way of keeping passwords: tests have a quicker one.
    environment = {**process_environment, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "-v0"]
    subprocess.run(collect, cwd=ROOT, env=environment, check=True)
    with live_server(environment, settings_module="tests.settings") as running:
        yield running


@contextmanager
def windows(server: LiveServer, *people: str) -> Iterator[list[Console]]:
    """A window for each person, logged in."""
    with browser() as opened:
        consoles = [new_console(opened, server.address) for _ in people]
        for console, name in zip(consoles, people, strict=True):
            console.log_in(name, PASSWORD)
        yield consoles


def send(page: Page, model: str, text: str) -> Any:
    """Say something to a model; its turn in the conversation."""
    page.select_option("#playground-model", model)
    page.fill("#playground-text", text)
    page.press("#playground-text", "Control+Enter")
    return page.locator(".live-turn-model").last


def test_an_operator_plays_and_another_watches(server: LiveServer, gateway: Gateway) -> None:
    with windows(server, "ada", "rita") as (play, tail):
        tail.open("/admin/tail/")
        tail.page.wait_for_selector("#tail-state:text('live')")
        play.open("/admin/playground/")
        answered = converse(play)
        see_it_go_by(tail, answered)
        for window, name in ((play, "playground"), (tail, "tail")):
            for theme, size in ((LIGHT, WIDE), (DARK, NARROW), (LIGHT, WIDE)):
                window.look(theme, size)
                window.check(f"{name}, {theme}")
        stop_a_long_one(play)
        paste_a_key(play, gateway.value)
        # One who only reads may watch and no more.
        refused = tail.page.goto(f"{server.address}/admin/playground/")
        assert refused is not None
        assert refused.status == 403
        play.open("/admin/")

    key = until(lambda: ProjectKey.objects.filter(name="Playground of ada", revoked_at__isnull=False).first())
    actions = AuditEvent.objects.filter(target_id=str(key.pk)).order_by("id").values_list("action", flat=True)
    assert list(actions) == ["project_key.create", "project_key.revoke"]
    assert Activity.objects.get(pk=answered).api_key_id == key.pk
    charged = Reservation.objects.order_by("admitted_at").values_list("api_key_id", "state", "basis")
    assert list(charged) == [
        (key.pk, "settled", "usage"),
        (key.pk, "settled", "usage"),
        (key.pk, "settled", "observed"),
        (gateway.key.pk, "settled", "usage"),
    ]


def converse(play: Console) -> str:
    """Two messages; the first one's request id."""
    turn = send(play.page, "echo", ATTACK)
    turn.locator("dd", has_text="$0.0000").wait_for()
    turn.locator("li", has_text="Greetings").first.wait_for()
    assert turn.locator(".live-text").inner_text() == ATTACK
    facts = turn.locator(".live-facts").inner_text()
    assert "200" in facts
    assert "stop" in facts
    assert "scored 100.00%, matches from 50.00%" in turn.locator("li").first.inner_text()

    thinker = send(play.page, "thinker", "and now?")
    thinker.locator(".live-thoughts .live-text").wait_for()
    thinker.locator("dd", has_text="reasoning").wait_for()
    return str(turn.locator("dd code").get_attribute("title"))


def see_it_go_by(tail: Console, request_id: str) -> None:
    row = tail.page.locator("tr", has_text=request_id[:8])
    row.wait_for()
    assert "Playground of ada" in row.inner_text()
    assert row.locator("a").get_attribute("href") == f"/admin/inference/activity/{request_id}/change/"
    tail.page.fill("#tail-text", "no such project")
    assert tail.page.locator("#tail-rows tr").count() == 0
    tail.page.fill("#tail-text", "ACME")
    row.wait_for()


def stop_a_long_one(play: Console) -> None:
    play.page.click("#playground-clear")
    assert play.page.locator(".live-turn").count() == 0
    turn = send(play.page, "paced-600x30", "go on")
    play.page.wait_for_function("document.querySelectorAll('.live-text')[1].textContent.length > 40")
    play.page.click("#playground-stop")
    turn.locator("dd", has_text="499 client_closed_request").wait_for()
    assert "Stopped." in turn.inner_text()
    assert play.page.locator("#playground-send").is_visible()
    play.check("stopped")


def paste_a_key(play: Console, value: str) -> None:
    play.page.check("[name=payer][value=key]")
    play.page.fill("#playground-key", value)
    play.page.uncheck("#playground-stream")
    turn = send(play.page, "echo", "good day")
    turn.locator("dd", has_text="$0.0000").wait_for()
    play.check("pasted")
