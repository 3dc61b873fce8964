"""An operator acts in the console: a button, a page that says what will happen, a message, and it is so."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin import site as admin_site
from django.urls import reverse
from playwright.sync_api import expect

from billing.models import Account, CreditGrant, Reservation, SpendingCap
from gateway_site.console.kit.actions import actions_of, address_of
from inference.models import Backend, CatalogModel, PassedCheck
from organization.models import AuditEvent, Organization, Project, ProjectKey
from policies.models import Policy
from tests.e2e.console.console_data import OPERATOR
from tests.e2e.console.driver import DARK, LIGHT, NARROW, WIDE, Console
from tests.e2e.console.site import Site

pytestmark = pytest.mark.one_database


@pytest.fixture(autouse=True)
def _nothing_untoward(console: Console) -> Iterator[None]:
    console.look(LIGHT, WIDE)
    yield
    console.check("at the end")


def press(console: Console, row: Any, label: str) -> None:
    """The button on a row's own page."""
    console.open(address_of(row))
    # By the name that is read aloud, which the picture before it is no part of.
    console.page.locator(".action-bar").get_by_role("link", name=label, exact=True).click()
    console.settle()


def confirm(console: Console, label: str, *consequence: str) -> None:
    """The page says what will happen; the person agrees."""
    for words in consequence:
        expect(console.page.locator("form.confirm-action")).to_contain_text(words)
    console.page.locator(".confirm-buttons").get_by_role("button", name=label).click()
    console.settle()


def look_at_it(console: Console, name: str) -> None:
    """Pages that a person gets to only by doing something."""
    console.look(DARK, NARROW)
    console.check(f"{name}, narrow")
    console.check_accessible(f"{name}, dark", ["color-contrast"], "#main")
    console.look(LIGHT, WIDE)
    console.check_accessible(f"{name}, light", within="#main")


def expect_message(console: Console, words: str) -> None:
    expect(console.page.get_by_text(words).first).to_be_visible()


def last_event() -> tuple[str, str]:
    event = AuditEvent.objects.latest("id")
    return event.action, event.actor_label


def fresh(row: Any) -> Any:
    return type(row).objects.get(pk=row.pk)


def status_of_models(site: Site, value: str) -> int:
    """What a customer gets with this key."""
    request = urllib.request.Request(  # noqa: S310 - the server is ours
        f"{site.server.address}/v1/models", headers={"Authorization": f"Bearer {value}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


# --- keys --------------------------------------------------------------------------------------------


def test_a_key_is_revoked(console: Console, site: Site) -> None:
    key = site.data.keys["to revoke"]
    assert status_of_models(site, site.data.values["to revoke"]) == 200

    press(console, key, "Revoke")
    look_at_it(console, "a confirmation")
    confirm(console, "Revoke", "cannot be undone", key.redacted_value)

    expect_message(console, "revoked")
    assert fresh(key).revoked_at is not None
    assert last_event() == ("project_key.revoke", OPERATOR)
    assert status_of_models(site, site.data.values["to revoke"]) == 401


def test_an_impatient_click_does_it_once(console: Console, site: Site) -> None:
    press(console, site.data.keys["shop"], "Rotate")

    # Nothing is sent: what would be is noted, and whether the page had stopped it by then.
    stopped = console.page.evaluate(
        """() => {
            const form = document.querySelector("form.confirm-action"), stopped = [];
            addEventListener("submit", (event) => {
                stopped.push(event.defaultPrevented);
                event.preventDefault();
            });
            form.requestSubmit();
            form.requestSubmit();
            return stopped;
        }"""
    )

    assert stopped == [False, True]


def test_who_thinks_better_of_it_changes_nothing(console: Console, site: Site) -> None:
    key, events = site.data.keys["shop"], AuditEvent.objects.count()

    press(console, key, "Revoke")
    console.page.get_by_text("Cancel", exact=True).click()
    console.settle()

    assert console.page.url.endswith(address_of(key))
    assert fresh(key).revoked_at is None
    assert AuditEvent.objects.count() == events


def test_a_key_is_suspended_and_resumed(console: Console, site: Site) -> None:
    key, value = site.data.keys["to suspend"], site.data.values["to suspend"]

    press(console, key, "Suspend")
    confirm(console, "Suspend", "stops working at once")
    expect_message(console, "suspended")
    assert status_of_models(site, value) == 401

    press(console, key, "Resume")
    confirm(console, "Resume", "works again")
    expect_message(console, "resumed")
    assert status_of_models(site, value) == 200


def test_a_rotated_key_shows_its_value_once(console: Console, site: Site) -> None:
    key, old = site.data.keys["to rotate"], site.data.values["to rotate"]

    press(console, key, "Rotate")
    confirm(console, "Rotate", "shown once", "old value stops working")

    look_at_it(console, "a secret")
    new = console.page.locator("#secret").inner_text()
    assert status_of_models(site, new) == 200
    assert status_of_models(site, old) == 401
    rotated = last_event()
    is_not_shown_again(console, new)
    assert (last_event(), status_of_models(site, new)) == (rotated, 200)


def test_a_new_key_shows_its_value_once(console: Console, site: Site) -> None:
    console.open(reverse("admin:organization_projectkey_add"))
    console.page.locator(".select2-selection").click()
    console.page.locator(".select2-search__field").fill("Web sh")
    console.page.locator(".select2-results__option", has_text="Web shop").click()
    console.page.fill("#id_name", "made by hand")
    console.page.locator("button[name=_save]").click()
    console.settle()

    value = console.page.locator("#secret").inner_text()
    assert status_of_models(site, value) == 200
    is_not_shown_again(console, value)
    assert ProjectKey.objects.filter(name="made by hand", project=site.data.web).count() == 1


def is_not_shown_again(console: Console, value: str) -> None:
    """Neither by reloading, nor by going back to where it was."""
    console.page.reload()
    console.settle()
    assert value not in console.page.content()
    console.open(reverse("admin:index"))
    console.page.go_back()
    console.settle()
    assert value not in console.page.content()


# --- projects, money ---------------------------------------------------------------------------------


def test_a_project_is_archived(console: Console, site: Site) -> None:
    project = Project.objects.get(name="To archive")

    press(console, project, "Archive")
    confirm(console, "Archive", "cannot be undone")

    expect_message(console, "archived")
    assert fresh(project).archived_at is not None


def test_an_organization_and_a_project_are_made(console: Console, site: Site) -> None:
    name = "<b>New & bold</b>"
    console.open(reverse("admin:organization_organization_add"))
    console.page.fill("#id_name", name)
    console.page.locator("button[name=_save]").click()
    console.settle()

    expect_message(console, name)
    assert Organization.objects.get(name=name)
    assert last_event() == ("organization.create", OPERATOR)


def test_credit_is_granted_after_a_look_at_what_it_makes(console: Console, site: Site) -> None:
    account = Account.objects.get(organization=site.data.poor)

    press(console, site.data.poor, "Grant credit")
    look_at_it(console, "a form")
    console.page.fill("#id_usd", "12.5")
    confirm(console, "Continue")
    look_at_it(console, "a review")
    assert fresh(account).granted_nanousd == account.granted_nanousd
    confirm(console, "Grant credit", "12.5")

    assert fresh(account).granted_nanousd == account.granted_nanousd + 12_500_000_000
    assert CreditGrant.objects.latest("id").amount_nanousd == 12_500_000_000
    assert last_event() == ("credit.grant", OPERATOR)


def test_a_limit_is_set_changed_and_removed(console: Console, site: Site) -> None:
    key = site.data.keys["shop"]

    press(console, key, "Set limit")
    console.page.fill("#id_limit", "7")
    confirm(console, "Continue")
    confirm(console, "Set limit", "refused", "7")
    cap = SpendingCap.objects.get(api_key=key)
    assert cap.limit_nanousd == 7_000_000_000

    press(console, cap, "Change")
    console.page.fill("#id_limit", "8")
    confirm(console, "Continue")
    confirm(console, "Change", "8")
    assert fresh(cap).limit_nanousd == 8_000_000_000

    press(console, cap, "Remove")
    confirm(console, "Remove")
    assert not SpendingCap.objects.filter(api_key=key).exists()


def test_what_nobody_knows_the_cost_of_is_written_off(console: Console, site: Site) -> None:
    lost = Reservation.objects.filter(state=Reservation.State.UNKNOWN).first()
    assert lost is not None

    press(console, lost, "Write off")
    confirm(console, "Write off", "operator bears", "cannot be undone")

    expect_message(console, "written off")
    assert fresh(lost).state == Reservation.State.WRITTEN_OFF


# --- policies, backends, models ----------------------------------------------------------------------


def test_a_policy_is_published_paused_and_resumed(console: Console, site: Site) -> None:
    policy = site.data.policies["To publish"]

    press(console, policy, "Publish")
    confirm(console, "Publish", "goes into force at once")
    assert fresh(policy).state == "monitoring"

    press(console, policy, "Pause")
    confirm(console, "Pause", "applies to no request")
    assert fresh(policy).state == "paused"

    press(console, policy, "Resume")
    confirm(console, "Resume", "applies again at once")
    assert fresh(policy).state == "monitoring"
    assert last_event() == ("policy.resume", OPERATOR)


def test_a_policy_is_tried_on_a_text(console: Console, site: Site) -> None:
    policy: Policy = site.data.policies["Watches"]
    console.open(reverse("admin:policies_policy_try", args=[policy.pk]))
    console.page.fill("textarea[name=text]", "news of project nightingale")
    console.page.locator("form:has(textarea[name=text]) button[type=submit]").click()
    console.settle()

    expect(console.page.get_by_text(re.compile("match", re.IGNORECASE)).first).to_be_visible()


def test_a_backend_is_asked_whether_it_is_there(console: Console, site: Site) -> None:
    backend = Backend.objects.get(name="nowhere")
    before = backend.probed_at

    press_immediate(console, backend)

    asked = fresh(backend)
    assert asked.probed_at is not None
    assert asked.probed_at != before
    assert asked.probe_problem


def press_immediate(console: Console, backend: Backend) -> None:
    console.open(address_of(backend))
    console.page.locator(".action-bar form button").first.click()
    console.settle()


def test_a_model_is_switched_off(console: Console, site: Site) -> None:
    model = CatalogModel.objects.get(pk="sim/refusal")
    console.open(address_of(model))
    console.page.locator("#id_is_enabled").uncheck(force=True)
    console.page.locator("button[name=_save]").click()
    console.settle()

    assert fresh(model).is_enabled is False
    assert last_event() == ("model.change", OPERATOR)


def test_a_check_is_withdrawn(console: Console, site: Site) -> None:
    passed = PassedCheck.objects.get(check_name="terms-0")

    press(console, passed, "Withdraw")
    confirm(console, "Withdraw", "no longer passes the check")

    expect_message(console, "withdrawn")
    assert not PassedCheck.objects.filter(pk=passed.pk).exists()
    assert last_event() == ("check.withdraw", OPERATOR)


# --- people ------------------------------------------------------------------------------------------


def test_a_new_colleague_gets_a_password_that_is_shown_once(console: Console, site: Site) -> None:
    console.open(reverse("admin:auth_user_add"))
    console.page.fill("#id_username", "grace")
    console.page.select_option("#id_role", "Billing")
    console.page.locator("button[name=_save]").click()
    console.settle()
    password = console.page.locator("#secret").inner_text()
    is_not_shown_again(console, password)

    window = site.window()
    window.log_in("grace", password)

    expect(window.page.get_by_text("Credit left")).to_be_visible()
    window.check("her first page")
    window.page.context.close()


def test_somebody_who_may_only_look_is_offered_nothing_and_refused(console: Console, site: Site) -> None:
    key = site.data.keys["shop"]
    window = site.window()
    window.log_in("read-only")
    window.open(address_of(key))
    assert window.page.locator(".action-bar").count() == 0
    window.check("a key, for a reader")

    window.open(reverse("admin:organization_projectkey_do", args=[key.pk, "revoke"]))

    assert any("403" in each for each in window.trouble)
    assert window.page.locator("form.confirm-action").count() == 0
    window.page.context.close()


# --- forgery -----------------------------------------------------------------------------------------


def test_what_another_site_posts_is_refused(console: Console, site: Site) -> None:
    """With the operator's own cookies, and without the token that only our pages have."""
    events = AuditEvent.objects.count()
    doors = [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_do", args=[row.pk, name])
        for model, page in admin_site._registry.items()
        if hasattr(page, "all_actions") and (row := model._default_manager.first()) is not None
        for name in actions_of(page)
    ]
    doors += [reverse("admin:organization_organization_add"), reverse("admin:logout")]

    for door in doors:
        answer = console.page.context.request.post(site.server.address + door, form={"confirmed": "yes"})
        assert answer.status == 403, door

    assert len(doors) > 15
    assert AuditEvent.objects.count() == events
