"""A playground's key ends at once with its person's session, role, password or account."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from gateway_site.console import users
from gateway_site.console.roles import BILLING, OPERATOR, OWNER
from gateway_site.models import PlaygroundKey
from organization.audit.trail import Actor
from organization.models import AuditEvent, Project, ProjectKey
from tests.factories import SOMEONE
from tests.gateway_site.console.factories import signed_in, someone
from tests.harness.client import exchange

pytestmark = pytest.mark.django_db
PASSWORD, FRESH = "correct horse battery", "another horse battery"


@pytest.fixture
def oleg() -> User:
    user = someone(OPERATOR, "oleg")
    user.set_password(PASSWORD)
    user.save()
    return user


@pytest.fixture
def owen() -> User:
    return someone(OWNER, "owen")


def browser_of(user: User, project: Project) -> tuple[Client, str]:
    """A browser with a playground open, and the key of that page."""
    browser = signed_in(user)
    answer = browser.post(reverse("playground-session"), {"project": str(project.pk)})
    value = str(answer.json()["value"])
    assert works(value)
    return browser, value


def works(value: str) -> bool:
    return exchange("GET", "/v1/models", [("Authorization", f"Bearer {value}")]).status in (200, 403)


def by(user: User) -> dict[str, Any]:
    return {"actor": Actor.staff(user), "manager": user}


def revoked_by() -> list[str]:
    events = AuditEvent.objects.filter(action="project_key.revoke").order_by("id")
    return list(events.values_list("actor_label", flat=True))


def test_logging_out_revokes_the_key_of_that_browser_alone(oleg: User, project: Project) -> None:
    browser, value = browser_of(oleg, project)
    _, elsewhere = browser_of(oleg, project)

    browser.post("/admin/logout/")

    assert (works(value), works(elsewhere)) == (False, True)
    assert revoked_by() == ["oleg"]


def test_when_another_person_logs_in_with_the_same_browser(oleg: User, owen: User, project: Project) -> None:
    browser, value = browser_of(owen, project)

    browser.post("/admin/login/", {"username": "oleg", "password": PASSWORD})

    assert not works(value)


def test_with_the_person(oleg: User, owen: User, project: Project) -> None:
    values = [browser_of(oleg, project)[1], browser_of(oleg, project)[1]]
    _, of_another = browser_of(owen, project)

    users.deactivate_user(user=oleg, **by(owen))

    assert [works(value) for value in values] == [False, False]
    assert works(of_another)
    assert revoked_by() == ["owen", "owen"]


def test_with_the_role(oleg: User, owen: User, project: Project) -> None:
    _, value = browser_of(oleg, project)

    users.change_role(user=oleg, role=OWNER, **by(owen))
    assert works(value), "an owner may use the playground too"

    users.change_role(user=oleg, role=BILLING, actor=SOMEONE, manager=User.objects.create_superuser("root"))
    assert not works(value)


def test_with_the_password(oleg: User, owen: User, project: Project) -> None:
    browser, first = browser_of(oleg, project)
    typed = {"old_password": PASSWORD, "new_password1": FRESH, "new_password2": FRESH}
    assert browser.post(reverse("admin:password_change"), typed).status_code == 302
    assert not works(first)
    oleg.refresh_from_db()
    _, second = browser_of(oleg, project)

    users.reset_password(user=oleg, **by(owen))

    assert not works(second)


def test_sessions_of_a_deactivated_person_do_not_come_back(oleg: User, owen: User) -> None:
    browser, other = signed_in(oleg), signed_in(owen)
    index = reverse("admin:index")
    assert browser.get(index).status_code == 200

    users.deactivate_user(user=oleg, **by(owen))
    users.reactivate_user(user=oleg, **by(owen))

    assert browser.get(index).status_code == 302
    assert other.get(index).status_code == 200


def test_whose_an_old_key_was_is_forgotten(oleg: User, project: Project) -> None:
    browser_of(oleg, project)
    ProjectKey.objects.update(expires_at="2026-01-01T00:00:00Z")

    browser_of(oleg, project)

    assert PlaygroundKey.objects.count() == 1
