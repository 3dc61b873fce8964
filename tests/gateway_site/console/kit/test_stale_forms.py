"""Two people at once, pages that were left open, and forms that are refused: nobody's work is undone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client

from billing import services as billing_services
from billing.models import Account, Reservation, SpendingCap
from billing.prices import versions
from inference.catalog import services as inference_services
from inference.models import Backend, CatalogModel, Deployment, PassedCheck
from organization import services
from organization.models import AuditEvent, Organization, Project, ProjectKey
from policies import services as policy_services
from policies.models import Policy
from tests.factories import SOMEONE
from tests.gateway_site.console.factories import (
    CONFIRMED,
    SampleRows,
    action_url,
    list_url,
    make_policy,
    page,
    signed_in,
    someone,
)
from tests.gateway_site.console.page_forms import form_on
from tests.harness.ledger_checks import assert_books_balance

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
MINUTES_AGO = "Somebody else changed this"


def read(client: Client, address: str) -> str:
    return str(client.get(address).content.decode())


def send(client: Client, address: str, fields: Mapping[str, object]) -> str:
    """What the page that follows says."""
    return str(client.post(address, fields, follow=True).content.decode())


def columns(row: Any) -> dict[str, Any]:
    return dict(type(row)._default_manager.filter(pk=row.pk).values().get())


# --- pages that were left open ------------------------------------------------------------------------


def test_saving_a_form_changes_only_what_was_typed(console: Client, samples: SampleRows) -> None:
    """Whoever opens a form and saves it changes what they typed, and nothing else."""
    model: CatalogModel = samples[CatalogModel]
    before = columns(model)

    send(console, page(model), {**form_on(console, page(model)), "display_name": "Small"})

    after = columns(model)
    assert {name for name in after if after[name] != before[name]} == {"display_name"}
    assert AuditEvent.objects.latest("id").details == {
        "display_name": "Small",
        "before": {"display_name": "Acme"},
    }


def test_an_old_page_sets_no_price_back_and_enables_no_model(console: Client, samples: SampleRows) -> None:
    model = samples[CatalogModel]
    opened = form_on(console, page(model))
    inference_services.save_model(
        model_id=model.pk, changes={"is_enabled": False}, prices={"prompt": 9_000}, actor=SOMEONE
    )

    said = send(console, page(model), {**opened, "display_name": "typed by hand"})

    assert MINUTES_AGO in said
    assert 'value="typed by hand"' in said
    model.refresh_from_db()
    assert (model.is_enabled, model.display_name) == (False, "Acme")
    version = versions.in_force_for(model.pk)
    assert version is not None
    assert version.card.rates["prompt"].picousd == 9_000


def test_an_old_page_enables_no_deployment_that_was_disabled(console: Client, samples: SampleRows) -> None:
    model, backend = samples[CatalogModel], samples[Backend]
    opened = form_on(console, page(model))
    inference_services.save_deployment(
        model=model, backend=backend, upstream_id="Acme", is_enabled=False, actor=SOMEONE
    )

    assert MINUTES_AGO in send(console, page(model), {**opened, "display_name": "Small"})
    assert not Deployment.objects.get().is_enabled


def test_an_old_page_enables_no_backend(console: Client, samples: SampleRows) -> None:
    backend = samples[Backend]
    opened = form_on(console, page(backend))
    console.post(action_url(backend, "disable"), CONFIRMED)
    changed = {**opened, "base_url": "http://127.0.0.1:10/v1"}

    assert MINUTES_AGO in send(console, page(backend), changed)
    backend.refresh_from_db()
    assert (backend.is_enabled, backend.base_url) == (False, opened["base_url"])


def test_a_probe_is_no_change_to_a_backend(console: Client, samples: SampleRows) -> None:
    backend = samples[Backend]
    opened = form_on(console, page(backend))
    console.post(action_url(backend, "ask"), {})

    send(console, page(backend), {**opened, "base_url": "http://127.0.0.1:10/v1"})

    backend.refresh_from_db()
    assert backend.base_url == "http://127.0.0.1:10/v1"


def test_a_reader_is_not_shown_what_only_a_form_needs(samples: SampleRows) -> None:
    reader = signed_in(someone("Read-only"))

    for row in (samples[CatalogModel], samples[Backend]):
        assert not re.search(r">\s*Seen\b", read(reader, page(row)))


# --- two people -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_colleagues_new_value_is_not_rotated_away(console: Client, samples: SampleRows) -> None:
    key = samples[ProjectKey]
    opened = form_on(console, action_url(key, "rotate"))
    colleague = signed_in(someone("Operator"))
    assert "Copy the value now" in send(colleague, action_url(key, "rotate"), CONFIRMED)
    key.refresh_from_db()

    said = send(console, action_url(key, "rotate"), opened)

    assert "was rotated since you looked at it" in said
    assert ProjectKey.objects.get(pk=key.pk).digest == key.digest
    assert "Copy the value now" in send(
        console, action_url(key, "rotate"), form_on(console, action_url(key, "rotate"))
    )
    assert AuditEvent.objects.filter(action="project_key.rotate").count() == 2


@pytest.mark.slow
def test_a_draft_that_nobody_saw_is_not_published_with_others(console: Client, samples: SampleRows) -> None:
    policies = [samples[Policy], make_policy(samples[Organization], "second", "x")]
    chosen = {"action": "publish", "_selected_action": [str(each.pk) for each in policies]}

    said = send(console, list_url(Policy), {**chosen, "mode": "enforcing", **CONFIRMED})

    assert "Choose one row to publish" in said
    assert set(Policy.objects.values_list("state", flat=True)) == {"monitoring"}


def test_a_limit_that_two_people_remove_is_removed_once(samples: SampleRows) -> None:
    cap = SpendingCap.objects.get()
    billing_services.set_spending_limit(
        scope=samples[ProjectKey], period="day", limit_nanousd=7, actor=SOMEONE
    )

    for seen_by in (cap, SpendingCap.objects.get()):
        billing_services.remove_spending_limit(cap=seen_by, actor=SOMEONE)

    [event] = AuditEvent.objects.filter(action="spending_limit.remove")
    assert event.details["usd"] == "0.000000007"
    assert_books_balance()


def test_rows_that_left_the_list_meanwhile_are_told(console: Client, samples: SampleRows) -> None:
    key = samples[ProjectKey]
    services.suspend_key(key=key, actor=SOMEONE)
    chosen = {"action": "revoke", "_selected_action": [str(key.pk)]}

    for sent in (chosen, {**chosen, **CONFIRMED}):
        said = send(console, f"{list_url(ProjectKey)}?status=active", sent)
        assert "not in this list any more" in said
        assert "confirm-title" not in said
    assert ProjectKey.objects.get().revoked_at is None


# --- forms that are refused -----------------------------------------------------------------------------


def test_what_was_typed_survives_a_refusal(console: Client, samples: SampleRows) -> None:
    services.archive_project(project=samples[Project], actor=SOMEONE)
    before = AuditEvent.objects.count()
    typed = {"project": str(samples[Project].pk), "name": "typed by hand", "expires_in_days": "30"}

    said = send(console, list_url(ProjectKey, "add"), typed)

    assert "The project is archived." in said
    assert 'value="typed by hand"' in said
    assert AuditEvent.objects.count() == before


def test_a_draft_survives_that_another_was_quicker(console: Client, samples: SampleRows) -> None:
    policy = samples[Policy]
    opened = {**form_on(console, page(policy)), "rule": "Is this a long thought?"}
    policy_services.edit_policy(
        policy=policy, revision=policy.revision, changes={"rule": "Quicker?"}, actor=SOMEONE
    )

    said = send(console, page(policy), opened)

    assert "has changed since" in said
    assert "Is this a long thought?" in said
    assert Policy.objects.get().rule == "Quicker?"


def test_a_project_that_is_there_is_not_said_to_be_added(console: Client, samples: SampleRows) -> None:
    typed = {"organization": str(samples[Organization].pk), "name": samples[Project].name}

    said = send(console, list_url(Project, "add"), typed)

    assert "has an active project of this name" in said
    assert "was added" not in said
    assert Project.objects.count() == 1


@pytest.mark.parametrize(("usd", "complaint"), [("0", "grant of nothing"), ("-5.5", "Only $5.00 is left")])
def test_a_grant_that_cannot_be_is_not_reviewed(
    console: Client, samples: SampleRows, usd: str, complaint: str
) -> None:
    left = Account.objects.get().available_nanousd
    typed = {"usd": usd, "reason": "a mistake", "reference": "", "form_id": "f"}

    for sent in ({**typed, "asked": "yes"}, {**typed, **CONFIRMED}):
        said = send(console, action_url(samples[Organization], "grant_credit"), sent)
        assert complaint in said
        assert 'value="a mistake"' in said
        assert "Available afterwards" not in said
    assert Account.objects.get().available_nanousd == left


def test_a_refused_amount_can_be_put_right(console: Client, samples: SampleRows) -> None:
    """The reference was used meanwhile: the form comes back with what was typed, and says so."""
    organization = samples[Organization]
    typed = {"usd": "3", "reason": "paid", "reference": "invoice 7", "form_id": "f"}
    billing_services.grant_credit(
        organization=organization, amount_nanousd=1, reason="", reference="invoice 7", actor=SOMEONE
    )

    said = send(console, action_url(organization, "grant_credit"), {**typed, **CONFIRMED})

    assert "was used for a grant of" in said
    assert 'value="invoice 7"' in said
    assert 'name="confirmed"' not in said
    assert_books_balance()


def test_a_negative_cost_is_not_reviewed(console: Client, samples: SampleRows) -> None:
    said = send(console, action_url(samples[Reservation], "settle"), {"cost": "-1", "asked": "yes"})

    assert "A cost is not negative." in said
    assert "Charged to the customer" not in said


# --- what is not there ----------------------------------------------------------------------------------


def test_a_row_that_is_gone_gets_the_404_page(console: Client, samples: SampleRows) -> None:
    cap = samples[SpendingCap]
    removal = action_url(cap, "remove")
    console.post(removal, CONFIRMED)

    for answer in (console.get(removal), console.post(removal, CONFIRMED), console.get("/admin/nothing/")):
        assert answer.status_code == 404
        assert "Page not found" in answer.content.decode()
    assert Client().get("/v1/nothing").headers["Content-Type"] == "application/json"


def test_a_form_from_before_the_login_gets_the_csrf_page(samples: SampleRows) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(someone("Owner"))

    answer = client.post(action_url(samples[ProjectKey], "revoke"), CONFIRMED)

    assert answer.status_code == 403
    assert "This page has expired" in answer.content.decode()
    assert ProjectKey.objects.get().revoked_at is None


def test_an_unforeseen_failure_gets_the_500_page_without_session_or_database(
    console: Client, samples: SampleRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(services, "revoke_key", break_down)
    console.raise_request_exception = False

    answer = console.post(action_url(samples[ProjectKey], "revoke"), CONFIRMED)

    assert answer.status_code == 500
    said = answer.content.decode()
    assert "Something went wrong" in said
    assert "secret detail" not in said
    assert ProjectKey.objects.get().revoked_at is None


def test_the_trail_leads_only_where_there_is_something_to_see(console: Client, samples: SampleRows) -> None:
    passed, guest = samples[PassedCheck], someone("Billing", "bob")
    console.post(action_url(passed, "withdraw"), CONFIRMED)
    withdrawn = AuditEvent.objects.latest("id")
    made = AuditEvent.objects.get(action="user.create", target_id=str(guest.pk))
    reader = signed_in(someone("Read-only"))

    for client, event, gone in ((console, withdrawn, page(passed)), (reader, made, page(guest))):
        assert f'href="{gone}"' not in read(client, list_url(AuditEvent))
        assert f'href="{gone}"' not in read(client, page(event))
    assert f'href="{page(guest)}"' in read(console, list_url(AuditEvent))
    assert f'href="{page(guest)}"' in read(console, page(made))


def test_djangos_own_history_page_is_not_served(console: Client, samples: SampleRows) -> None:
    assert console.get(page(samples[ProjectKey], "history")).status_code == 404
