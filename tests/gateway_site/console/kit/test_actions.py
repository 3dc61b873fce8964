"""What people do in the console: never by a link, always after they were told what will happen."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.models import DailyCost, Reservation, UnrolledCost
from inference.models import Backend, CatalogModel
from organization import services
from organization.models import AuditEvent, Organization, Project, ProjectKey
from policies import services as policy_services
from policies.models import DailyVerdicts, Policy
from tests.factories import SOMEONE, make_project_key
from tests.gateway_site.console.factories import (
    CONFIRMED,
    MODELS,
    SampleRows,
    action_url,
    every_action,
    form_of,
    list_url,
    make_policy,
    page,
    settle,
)
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.catalog.model_list_server import model_list_server

pytestmark = pytest.mark.django_db
# The list, its number, the session, the user, and what is asked once for the whole page.
MOST_QUERIES = 12


def test_an_action_is_confirmed_and_carried_out_from_a_rows_page(
    console: Client, samples: SampleRows
) -> None:
    key = samples[ProjectKey]

    asked = console.get(action_url(key, "revoke")).content.decode()
    assert "for ever" in asked
    assert key.redacted_value in asked
    answer = console.post(action_url(key, "revoke"), {"confirmed": "yes"})

    assert answer.headers["Location"] == page(key)
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert AuditEvent.objects.get(action="project_key.revoke").actor_label == "ada"
    assert action_url(key, "revoke") not in console.get(page(key)).content.decode()


@pytest.mark.slow
def test_a_get_of_an_action_changes_nothing_whatever_its_query(console: Client, samples: SampleRows) -> None:
    before = AuditEvent.objects.count()
    for model, action in every_action():
        for query in ({}, form_of(action)):
            assert console.get(action_url(samples[model], action.name), query).status_code == 200, action.name

    assert AuditEvent.objects.count() == before
    assert Backend.objects.get().probed_at is None
    assert_books_balance()


@pytest.mark.slow
def test_a_post_without_its_token_is_refused(samples: SampleRows) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    before = AuditEvent.objects.count()

    for model, action in every_action():
        answer = client.post(action_url(samples[model], action.name), form_of(action))
        assert answer.status_code == 403, action.name
    assert AuditEvent.objects.count() == before


def test_an_unconfirmed_post_gets_the_confirmation_page(console: Client, samples: SampleRows) -> None:
    answer = console.post(action_url(samples[ProjectKey], "revoke"), {})

    assert 'name="confirmed" value="yes"' in answer.content.decode()
    assert ProjectKey.objects.get().revoked_at is None


def test_what_is_not_there_cannot_be_acted_on(console: Client, samples: SampleRows, project: Project) -> None:
    gone = action_url(samples[ProjectKey], "revoke").replace(str(samples[ProjectKey].pk), str(project.pk))

    assert console.post(gone, {"confirmed": "yes"}).status_code == 404
    assert console.post(action_url(samples[ProjectKey], "explode"), {"confirmed": "yes"}).status_code == 403


def test_the_confirmation_of_an_archive_counts_the_keys_that_stop(
    console: Client, samples: SampleRows
) -> None:
    project = samples[Project]
    make_project_key(project)
    services.revoke_key(key=make_project_key(project).key, actor=SOMEONE)

    told = console.get(action_url(project, "archive"))

    assert ("Active keys that stop working", 2) in told.context["described"][0][1]


def test_a_draft_is_published_as_it_was_seen(console: Client, samples: SampleRows) -> None:
    policy = samples[Policy]
    told = console.get(action_url(policy, "publish")).content.decode()
    assert "Does it say &quot;Internal&quot;?" in told
    assert "all projects of Acme: 1 active" in told
    seen = {"mode": "enforcing", "seen_revision": str(policy.revision), **CONFIRMED}
    policy_services.edit_policy(
        policy=policy, revision=policy.revision, changes={"rule": "Is it another?"}, actor=SOMEONE
    )

    stale = console.post(action_url(policy, "publish"), seen, follow=True)
    assert "has changed since" in stale.content.decode()
    assert Policy.objects.get().state == "monitoring"
    console.post(action_url(policy, "publish"), {**seen, "seen_revision": str(policy.revision)})

    published = Policy.objects.select_related("current_version").get()
    assert published.current_version is not None
    assert (published.state, published.current_version.rule) == ("enforcing", "Is it another?")


def test_models_and_backends_are_disabled_and_enabled(console: Client, samples: SampleRows) -> None:
    backend, model = samples[Backend], samples[CatalogModel]
    assert model.pk in console.get(action_url(backend, "disable")).content.decode()  # has no other place

    for row in (backend, model):
        console.post(action_url(row, "disable"), {"confirmed": "yes"})
        row.refresh_from_db()
        assert not row.is_enabled
        console.post(action_url(row, "enable"), {"confirmed": "yes"})
        row.refresh_from_db()
        assert row.is_enabled
    assert set(AuditEvent.objects.order_by("-id").values_list("action", flat=True)[:4]) == {
        "backend.change",
        "model.change",
    }


def test_a_backend_is_asked_and_its_models_are_imported(console: Client, samples: SampleRows) -> None:
    with model_list_server() as upstream:
        upstream.offer("small", "large")
        Backend.objects.update(base_url=upstream.base_url)
        console.post(action_url(samples[Backend], "ask"), {})
        said = console.post(
            action_url(samples[Backend], "sync"), {"before_ids": "theirs/", **CONFIRMED}, follow=True
        ).content.decode()

    assert Backend.objects.get().probed_at is not None
    assert "2 added" in said
    added = CatalogModel.objects.filter(pk__startswith="theirs/")
    assert added.exists()
    assert not added.filter(is_enabled=True).exists()


def test_an_unknown_request_is_written_off(console: Client, samples: SampleRows) -> None:
    console.post(action_url(samples[Reservation], "write_off"), {"confirmed": "yes"})

    assert Reservation.objects.get(pk=samples[Reservation].pk).state == "written_off"
    assert_books_balance()


# --- what the lists show ------------------------------------------------------------------------------


def test_spending_of_thirty_days_stands_beside_keys_projects_and_organizations(
    console: Client, samples: SampleRows
) -> None:
    today = timezone.now().date()
    key = samples[ProjectKey]
    owned = {"organization": samples[Organization], "project": key.project, "api_key": key, "lines": 1}
    UnrolledCost.objects.all().delete()
    for model, ago, amount in ((DailyCost, 0, 2), (UnrolledCost, 29, 3), (DailyCost, 30, 50)):
        model.objects.create(
            **owned, day=today - timedelta(days=ago), line_item="x", quantity=1, amount_nanousd=amount * 10**9
        )

    for shown in (ProjectKey, Project, Organization):
        assert "$5.00" in console.get(list_url(shown)).content.decode(), shown


def test_matches_of_today_and_the_week_stand_beside_policies(console: Client, samples: SampleRows) -> None:
    version = samples[Policy].current_version
    today = timezone.now().date()
    for ago, matches in ((0, 3), (6, 4), (7, 100)):
        DailyVerdicts.objects.create(day=today - timedelta(days=ago), version=version, matches=matches)

    assert "3 / 7" in console.get(list_url(Policy)).content.decode()


def test_a_project_tells_which_policies_apply(console: Client, samples: SampleRows) -> None:
    shown = console.get(page(samples[Project])).content.decode()

    assert "Policies that apply to every request" in shown
    assert page(samples[Policy]) in shown


def test_an_event_tells_what_was_before_and_leads_to_its_target(console: Client, samples: SampleRows) -> None:
    console.post(action_url(samples[CatalogModel], "disable"), {"confirmed": "yes"})
    event = AuditEvent.objects.latest("id")

    told = console.get(page(event)).content.decode()

    assert '<span class="change-old">yes</span> → <span class="change-new">no</span>' in told
    assert page(samples[CatalogModel]) in told


@pytest.mark.slow
@pytest.mark.one_database
def test_lists_of_thirty_take_as_few_queries_as_lists_of_one(console: Client, samples: SampleRows) -> None:
    few = {model: queries(console, list_url(model)) for model in MODELS}
    for number in range(30):
        organization, _ = services.create_organization(name=f"o{number}", actor=SOMEONE)
        project, _ = services.create_project(organization=organization, name="p", actor=SOMEONE)
        make_project_key(project)
        make_policy(organization, f"p{number}", "x")
    for _ in range(5):
        settle(samples.customer, 10)
    many = {model: queries(console, list_url(model)) for model in MODELS}

    # The trail names each kind of thing with one query, and there are more kinds now.
    assert {model: many[model] - few[model] for model in MODELS if model is not AuditEvent} == {
        model: 0 for model in MODELS if model is not AuditEvent
    }
    assert {model: count for model, count in many.items() if count > MOST_QUERIES} == {}


def queries(console: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as made:
        assert console.get(address).status_code == 200
    return len(made)
