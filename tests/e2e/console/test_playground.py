"""An operator tries a model in a real browser, and sees the request go by in the live tail."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from billing.models import Reservation
from inference.models import Activity
from organization.models import AuditEvent, ProjectKey
from tests.e2e.console.console_data import PHRASE
from tests.e2e.console.driver import DARK, LIGHT, NARROW, WIDE, Console
from tests.e2e.console.site import Site
from tests.e2e.waiting import until

pytestmark = pytest.mark.one_database
ATTACK = f"{PHRASE} <img src=x onerror=window.pwned=1> friend"


def send(page: Page, model: str, text: str) -> Any:
    """Say something to a model; its turn in the conversation."""
    page.select_option("#playground-model", model)
    page.fill("#playground-text", text)
    page.press("#playground-text", "Control+Enter")
    return page.locator(".live-turn-model").last


def test_an_operator_plays_and_another_watches(site: Site, console: Console) -> None:
    data, tail = site.data, site.window()
    tail.log_in("read-only")
    tail.open("/admin/tail/")
    tail.page.wait_for_selector("#tail-state:text('live')")
    console.look(LIGHT, WIDE)
    console.open(f"/admin/playground/?project={data.play.pk}")
    answered = converse(console)
    see_it_go_by(tail, answered)
    for window, name in ((console, "playground"), (tail, "tail")):
        for theme, size in ((DARK, NARROW), (LIGHT, WIDE)):
            window.look(theme, size)
            window.check(f"{name}, {theme}")
            window.check_accessible(f"a conversation, {theme}", within="#main")
    stop_a_long_one(console)
    paste_a_key(console, data.values["play"])
    # One who only reads may watch and no more.
    refused = tail.page.goto(f"{site.server.address}/admin/playground/")
    assert refused is not None
    assert refused.status == 403
    tail.page.context.close()
    console.open("/admin/")

    key = until(lambda: ProjectKey.objects.filter(name="Playground of ada", revoked_at__isnull=False).first())
    actions = AuditEvent.objects.filter(target_id=str(key.pk)).order_by("id").values_list("action", flat=True)
    assert list(actions) == ["project_key.create", "project_key.revoke"]
    assert Activity.objects.get(pk=answered).api_key_id == key.pk
    charged = Reservation.objects.filter(project=data.play).order_by("admitted_at")
    assert list(charged.values_list("api_key_id", "state", "basis")) == [
        (key.pk, "settled", "usage"),
        (key.pk, "settled", "usage"),
        (key.pk, "settled", "observed"),
        (data.keys["play"].pk, "settled", "usage"),
    ]


def converse(play: Console) -> str:
    """Two messages; the first one's request id."""
    turn = send(play.page, "sim/echo", ATTACK)
    turn.locator("dd", has_text="$0.0000").wait_for()
    judged = turn.locator("li", has_text="Watches").first
    judged.wait_for()
    assert turn.locator(".live-text").inner_text() == ATTACK
    facts = turn.locator(".live-facts").inner_text()
    assert "200" in facts
    assert "stop" in facts
    assert "scored 100.00%, matches from 50.00%" in judged.inner_text()

    thinker = send(play.page, "sim/thinker", "and now?")
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
    turn = send(play.page, "sim/paced-400x40", "go on")
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
    turn = send(play.page, "sim/echo", "good day")
    turn.locator("dd", has_text="$0.0000").wait_for()
    play.check("pasted")
