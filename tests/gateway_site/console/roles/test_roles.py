"""Four roles: what each is for, and what it is shown. `test_role_matrix` has every page for each of them."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User

from gateway_site.console import roles
from gateway_site.console.roles import BILLING, OPERATOR, OWNER, READER
from organization.audit import trail as audit
from organization.audit.trail import Actor
from organization.models import AuditEvent, ProjectKey
from tests.gateway_site.console.clients import person
from tests.gateway_site.console.factories import (
    CONFIRMED,
    MODELS,
    SampleRows,
    action_url,
    list_url,
    page,
    signed_in,
    someone,
)

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
DEFAULT = ("view", "add", "change", "delete")


def held_by(group: Group) -> set[str]:
    rows = group.permissions.select_related("content_type")
    return {f"{each.content_type.app_label}.{each.codename}" for each in rows}


def test_an_operator_suspends_a_key_and_cannot_grant_credit(samples: SampleRows) -> None:
    """An operator suspends a key, and cannot grant credit."""
    operator = signed_in(someone(OPERATOR))
    key, organization = samples.customer.key, samples.customer.organization

    assert operator.post(action_url(key, "suspend"), {"confirmed": "yes"}).status_code == 302
    key.refresh_from_db()
    assert key.suspended_at is not None
    assert operator.get(action_url(organization, "grant_credit")).status_code == 403


def test_every_permission_that_exists_is_decided() -> None:
    decided = {
        f"{label.split('.')[0]}.{roles.codename(verb, label.split('.')[1])}"
        for label, decision in roles.TABLE.items()
        for verb in decision
    }
    existing = {
        f"{model._meta.app_label}.{codename}"
        for model in apps.get_models()
        for codename in (
            *(f"{verb}_{model._meta.model_name}" for verb in DEFAULT),
            *(codename for codename, _ in model._meta.permissions),
        )
    }

    assert decided == existing


def test_the_migration_gives_each_role_what_the_table_says() -> None:
    Group.objects.all().delete()
    Permission.objects.all().delete()
    migration = importlib.import_module("gateway_site.migrations.0001_roles")

    migration.make_groups(apps, None)

    assert {group.name: held_by(group) for group in Group.objects.all()} == {
        role: roles.permissions_of(role) for role in roles.ROLES
    }


def test_what_the_roles_are_for() -> None:
    """A few words of the table, said again by hand."""
    may = {role: roles.permissions_of(role) for role in roles.ROLES}

    assert may[READER] == {each for each in may[READER] if each.split(".")[1].startswith("view_")}
    assert "auth.view_user" not in may[READER] | may[OPERATOR] | may[BILLING]
    assert {"billing.add_creditgrant", "billing.change_reservation"} <= may[BILLING]
    assert not {each for each in may[OPERATOR] if each.startswith("billing.")} - may[READER]
    assert not {each for each in may[BILLING] - may[READER] if not each.startswith("billing.")}
    assert "inference.use_playground" in may[OPERATOR]
    assert "inference.use_playground" not in may[BILLING] | may[READER]
    assert may[READER] | may[OPERATOR] | may[BILLING] < may[OWNER]


@pytest.mark.slow
def test_who_may_only_look_is_shown_every_page(samples: SampleRows) -> None:
    """Drawn, this time: a page for writing is another one than the same for looking."""
    reader = signed_in(someone(READER))

    for model in set(MODELS) - {User, Group}:
        shown = reader.get(page(samples[model]))
        assert shown.status_code == 200, model
        assert 'name="_save"' not in shown.content.decode(), model


@pytest.mark.slow
def test_the_buttons_are_those_of_the_role(samples: SampleRows) -> None:
    organization, key = samples.customer.organization, samples.customer.key
    shown = {
        role: [
            name
            for row, name in ((organization, "grant_credit"), (key, "revoke"), (key, "set_limit"))
            if action_url(row, name) in signed_in(someone(role)).get(page(row)).content.decode()
        ]
        for role in roles.ROLES
    }

    assert shown == {
        OWNER: ["grant_credit", "revoke", "set_limit"],
        OPERATOR: ["revoke"],
        BILLING: ["grant_credit", "set_limit"],
        READER: [],
    }


def test_the_lists_offer_what_the_role_may_do(samples: SampleRows) -> None:
    def offered(role: str, model: Any) -> set[str]:
        shown = signed_in(someone(role)).get(list_url(model)).content.decode()
        return set(re.findall(r'<option value="(\w+)"', shown))

    assert offered(OWNER, ProjectKey) >= {"rotate", "suspend", "resume", "revoke", "set_limit"}
    assert offered(OPERATOR, ProjectKey) == {"rotate", "suspend", "resume", "revoke"}
    assert offered(BILLING, ProjectKey) == {"set_limit"}
    assert offered(READER, ProjectKey) == set()


def test_an_action_on_a_row_needs_the_permission_to_view_it(samples: SampleRows) -> None:
    """Someone who may grant credit, and may not see organizations."""
    blind = person("billing.add_creditgrant", "billing.change_spendingcap")
    organization = samples.customer.organization

    for action, fields in (("grant_credit", {"usd": "1", "form_id": "f"}), ("set_limit", {"limit": "1"})):
        assert blind.get(action_url(organization, action)).status_code == 403
        answer = blind.post(action_url(organization, action), {**fields, "period": "day", **CONFIRMED})
        assert answer.status_code == 403


def test_a_refusal_is_a_page_for_people(samples: SampleRows) -> None:
    answer = signed_in(someone(READER)).get(action_url(samples.customer.key, "revoke"))

    assert answer.status_code == 403
    assert "Your role does not allow this" in answer.content.decode()


def test_someone_without_a_role_sees_nothing(samples: SampleRows) -> None:
    guest = signed_in(samples[User])

    assert guest.get(list_url(MODELS[0])).status_code == 403


@pytest.mark.parametrize("role", [OPERATOR, BILLING, READER])
def test_who_may_not_see_people_sees_no_log_ins_of_theirs(samples: SampleRows, role: str) -> None:
    ada = someone(OWNER, "ada")
    details = {"address": "203.0.113.9"}
    entry = audit.record(Actor.staff(ada), "user.log_in", ada, organization=None, details=details)
    client = signed_in(someone(role))
    trail = list_url(AuditEvent)

    shown = [client.get(trail), client.get(trail, {"q": "user.log_in"}), client.get(trail, {"q": "ada"})]

    for answer in shown:
        assert answer.status_code == 200
        assert "user.log_in" not in str([each.action for each in answer.context["cl"].result_list])
    assert client.get(page(entry)).status_code == 302
    assert client.get(page(samples[AuditEvent])).status_code == 200, "the others are shown"
    of_owner = signed_in(ada)
    assert "203.0.113.9" in of_owner.get(page(entry)).content.decode()
    assert entry in of_owner.get(trail, {"q": "user.log_in"}).context["cl"].result_list
