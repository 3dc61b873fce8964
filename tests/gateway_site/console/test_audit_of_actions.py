"""Whatever is done in the console is done by one service, once, and says in the trail who did it to what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model
from django.template.response import SimpleTemplateResponse
from django.test import Client

from billing.models import Account, Reservation, SpendingCap
from gateway_site.console.kit import actions as console_actions
from inference.models import Backend, CatalogModel, PassedCheck
from organization import services
from organization.models import AdminKey, AuditEvent, Organization, Project, ProjectKey
from policies.models import Policy
from tests.factories import SOMEONE
from tests.gateway_site.console.factories import (
    CONFIRMED,
    SampleRows,
    action_url,
    every_action,
    form_of,
    list_url,
    signed_in,
    someone,
)
from tests.harness.ledger_checks import assert_books_balance

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

LIMIT_SET = "spending_limit.set"
# The one entry that each action leaves.
ENTRIES: dict[type[Model], dict[str, str]] = {
    Organization: {"grant_credit": "credit.grant", "set_limit": LIMIT_SET},
    Account: {"grant_credit": "credit.grant", "set_limit": LIMIT_SET},
    Project: {"archive": "project.archive", "set_limit": LIMIT_SET},
    ProjectKey: {
        **{verb: f"project_key.{verb}" for verb in ("rotate", "suspend", "resume", "revoke")},
        "set_limit": LIMIT_SET,
    },
    AdminKey: {verb: f"admin_key.{verb}" for verb in ("rotate", "suspend", "resume", "revoke")},
    SpendingCap: {"change_limit": LIMIT_SET, "remove": "spending_limit.remove"},
    Reservation: {
        verb: f"reservation.{verb}" for verb in ("settle", "release", "charge_observed", "write_off")
    },
    Policy: {"publish": "policy.publish", "pause": "policy.pause", "resume": "policy.resume"},
    Backend: {"enable": "backend.change", "disable": "backend.change"},
    CatalogModel: {"enable": "model.change", "disable": "model.change"},
    PassedCheck: {"withdraw": "check.withdraw"},
    User: {verb: f"user.{verb}" for verb in ("change_role", "reset_password", "deactivate", "reactivate")},
}
# Questions to a backend: they change nothing that an operator decided. Nor does a period in which there
# were no requests; with some, the tests of corrections read the entries.
ASKED = {"ask", "sync", "rerate_period"}
FIRST = {"resume": "suspend", "enable": "disable", "reactivate": "deactivate"}
# Of these the trail names what was limited or whose credit it is.
ABOUT = {"grant_credit", "change_limit", "remove", "set_limit"}
# Where somebody asks for what is so already.
NOTHING_LEFT_TO_DO = {
    "suspend",
    "revoke",
    "archive",
    "enable",
    "disable",
    "deactivate",
    "pause",
    "change_role",
}


@pytest.fixture
def person() -> User:
    return someone("Owner", "bob")


@pytest.fixture(autouse=True)
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimpleTemplateResponse, "rendered_content", "")


def first_step(model: type[Model], name: str) -> str:
    return "pause" if (model, name) == (Policy, "resume") else FIRST.get(name, "")


def do(client: Client, row: Any, name: str) -> list[AuditEvent]:
    """What the trail has to say about it."""
    last = AuditEvent.objects.latest("id").pk
    [action] = [each for model, each in every_action() if model is type(row) and each.name == name]
    assert client.post(action_url(row, name), form_of(action)).status_code in (200, 302), name
    return list(AuditEvent.objects.filter(pk__gt=last))


@pytest.mark.slow
def test_every_action_leaves_one_entry_that_names_its_person(samples: SampleRows, person: User) -> None:
    client = signed_in(person)
    for model, action in every_action():
        if action.name in ASKED:
            continue
        row, before = samples[model], transaction.savepoint()
        if step := first_step(model, action.name):
            do(client, row, step)

        [entry] = do(client, row, action.name)

        assert entry.action == ENTRIES[model][action.name]
        assert (entry.actor_kind, entry.actor_id, entry.actor_label) == ("staff", str(person.pk), "bob")
        if action.name not in ABOUT:
            assert (entry.target_kind, entry.target_id) == (model._meta.model_name, str(row.pk))
        transaction.savepoint_rollback(before)
    assert_books_balance()


# What the forms of actions say, as the trail tells it.
TYPED: dict[type[Model], dict[str, dict[str, str]]] = {
    Account: {"grant_credit": {"usd": "1.5", "reason": "paid", "reference": "console f"}},
    Project: {"set_limit": {"usd": "7", "period": "month"}},
    SpendingCap: {"change_limit": {"usd": "3", "period": "day"}, "remove": {"usd": "2", "period": "day"}},
    Reservation: {"settle": {"charged_usd": "0.00000005", "operator_loss_usd": "0"}},
    Policy: {"publish": {"mode": "monitoring"}},
    User: {"change_role": {"role": "Billing"}},
}


def test_what_was_typed_is_what_is_done(samples: SampleRows, person: User) -> None:
    client = signed_in(person)
    for model, actions in TYPED.items():
        for name, typed in actions.items():
            before = transaction.savepoint()
            [entry] = do(client, samples[model], name)
            assert typed.items() <= entry.details.items(), (model, name, entry.details)
            transaction.savepoint_rollback(before)
    assert_books_balance()


def test_what_is_so_already_is_not_done_again(samples: SampleRows, person: User) -> None:
    """A second person with the same page open."""
    client = signed_in(person)
    for model, action in every_action():
        if action.name not in NOTHING_LEFT_TO_DO:
            continue
        row, before = samples[model], transaction.savepoint()
        do(client, row, action.name)
        assert do(client, row, action.name) == [], (model, action.name)
        transaction.savepoint_rollback(before)


def test_several_rows_are_acted_on_one_by_one(samples: SampleRows, person: User) -> None:
    keys = [samples[ProjectKey], *make_keys(samples, 2)]
    chosen = {"action": "suspend", "_selected_action": [str(key.pk) for key in keys[:2]]}
    last = AuditEvent.objects.latest("id").pk

    signed_in(person).post(list_url(ProjectKey), {**chosen, **CONFIRMED})

    entries = AuditEvent.objects.filter(pk__gt=last)
    assert {(entry.action, entry.target_id) for entry in entries} == {
        ("project_key.suspend", str(key.pk)) for key in keys[:2]
    }
    assert ProjectKey.objects.get(pk=keys[2].pk).suspended_at is None


def test_no_more_rows_are_acted_on_than_a_person_can_look_at(
    samples: SampleRows, person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_actions, "MOST_ROWS", 2)
    keys = [samples[ProjectKey], *make_keys(samples, 2)]
    chosen = {"action": "revoke", "_selected_action": [str(key.pk) for key in keys]}

    signed_in(person).post(list_url(ProjectKey), {**chosen, **CONFIRMED})

    assert not ProjectKey.objects.exclude(revoked_at=None).exists()


def test_whatever_is_made_leaves_an_entry(samples: SampleRows, person: User) -> None:
    client = signed_in(person)
    organization, project = str(samples[Organization].pk), str(samples[Project].pk)
    model = {
        "id": "new",
        "owned_by": "x",
        "prompt": "1",
        "completion": "1",
        "context_length": "10",
        "max_output_length": "5",
        "input_modalities": "text",
        "output_modalities": "text",
        "deployments-TOTAL_FORMS": "0",
        "deployments-INITIAL_FORMS": "0",
    }
    draft = {
        "name": "new",
        "rule": "Is it?",
        "direction": "both",
        "mode": "monitoring",
        "scope": "organization",
    }
    forms: dict[type[Model], tuple[str, dict[str, str]]] = {
        Organization: ("organization.create", {"name": "new"}),
        Project: ("project.create", {"name": "new", "organization": organization}),
        ProjectKey: ("project_key.create", {"name": "new", "project": project}),
        AdminKey: ("admin_key.create", {"name": "new", "organization": organization}),
        PassedCheck: ("check.pass", {"check_name": "new", "organization": organization}),
        Policy: ("policy.create", {**draft, "organization": organization}),
        Backend: ("backend.create", {"name": "new", "kind": "simulator"}),
        CatalogModel: ("model.create", model),
        User: ("user.create", {"username": "new", "role": "Billing"}),
    }
    for made, (action, fields) in forms.items():
        last, count = AuditEvent.objects.latest("id").pk, made._default_manager.count()
        client.post(list_url(made, "add"), fields)
        entry, *others = AuditEvent.objects.filter(pk__gt=last).order_by("id")
        # A model's prices have an entry of their own.
        assert [each.action for each in others] == (["price.create"] if made is CatalogModel else [])
        assert (entry.action, entry.actor_label) == (action, "bob")
        assert entry.target_id == str(made._default_manager.exclude(pk=samples[made].pk).latest("pk").pk)
        assert made._default_manager.count() == count + 1


def make_keys(samples: SampleRows, count: int) -> list[ProjectKey]:
    project = samples[Project]
    return [
        services.create_project_key(project=project, name=f"k{number}", actor=SOMEONE).key
        for number in range(count)
    ]
