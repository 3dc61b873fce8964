"""Operators write, try, publish, pause and resume policies in the console."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from organization.models import AuditEvent, Organization, Project
from policies import services
from policies.models import Policy, PolicyVersion, Verdict
from tests.factories import SOMEONE
from tests.policies.factories import PHRASE, RULE, make_policy, verdict

HOSTILE = '"><img src=x onerror=alert(1)>{{7*7}}'


@pytest.fixture
def operator(db: None) -> Any:
    return get_user_model().objects.create_superuser("ada", password="x")


@pytest.fixture
def console(operator: Any) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def listing(model: Any = Policy) -> str:
    return reverse(f"admin:policies_{model._meta.model_name}_changelist")


def change(policy: Policy) -> str:
    return reverse("admin:policies_policy_change", args=[policy.pk])


def trying(policy: Policy) -> str:
    return reverse("admin:policies_policy_try", args=[policy.pk])


def act(console: Client, action: str, *rows: Policy, confirmed: bool = True) -> Any:
    body = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    return console.post(listing(), {**body, "confirmed": "yes"} if confirmed else body, follow=True)


def form(**fields: Any) -> dict[str, Any]:
    defaults = {
        "name": "Internal",
        "description": "",
        "rule": RULE,
        "direction": "both",
        "mode": "monitoring",
        "scope": "organization",
        "project_ids": "",
        "match_threshold_basis_points": "",
    }
    return {**defaults, **fields}


def test_it_works(console: Client, acme: Organization, project: Project) -> None:
    console.post(
        reverse("admin:policies_policy_add"),
        form(organization=acme.pk, scope="projects", project_ids=f"{project.pk}\n", mode="enforcing"),
    )
    policy = Policy.objects.get()
    assert (policy.organization, policy.project_ids, policy.state) == (acme, [str(project.pk)], "draft")

    assert "refuses requests" in act(console, "publish", policy, confirmed=False).content.decode()
    assert not PolicyVersion.objects.exists()
    states = []
    for action in ("publish", "pause", "resume"):
        act(console, action, policy)
        policy.refresh_from_db()
        states.append(policy.state)

    assert states == ["enforcing", "paused", "enforcing"]
    actors = set(
        AuditEvent.objects.filter(action__startswith="policy.").values_list("actor_label", flat=True)
    )
    assert actors == {"ada"}


@pytest.mark.parametrize("model", [Policy, PolicyVersion, Verdict])
def test_every_page_opens_for_any_number_of_rows_with_as_few_queries(
    console: Client, acme: Organization, project: Project, model: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        policy = services.publish_policy(policy=make_policy(acme, name=f"p{number}"), actor=SOMEONE)
        Verdict.objects.bulk_create([verdict(policy, project, 0.5)] * 2)

    with django_assert_max_num_queries(12):
        assert console.get(listing(model)).status_code == 200
    row = model.objects.first()
    name = f"admin:policies_{model._meta.model_name}"
    assert console.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200
    assert console.get(reverse(f"{name}_add")).status_code == (200 if model is Policy else 403)
    assert console.get(listing(model) + "?q=x").status_code == 200


def test_a_draft_is_edited_from_the_revision_that_was_seen(console: Client, policy: Policy) -> None:
    page = console.post(change(policy), form(name="Renamed", seen_revision=1), follow=True)
    assert page.status_code == 200
    policy.refresh_from_db()
    assert (policy.name, policy.revision) == ("Renamed", 2)
    details = AuditEvent.objects.get(action="policy.edit").details
    assert (details["name"], details["before"]) == ("Renamed", {"name": "Internal"})

    refused = console.post(change(policy), form(name="Too late", seen_revision=1), follow=True)

    assert "has changed since" in refused.content.decode()
    policy.refresh_from_db()
    assert (policy.name, policy.revision) == ("Renamed", 2)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rule": "no question"}, "ends with"),
        ({"match_threshold_basis_points": "10000"}, "From 1 to 9999"),
        ({"project_ids": "x " * 1001}, "1000 projects at most"),
        (
            {"scope": "projects", "project_ids": "5f0e7bb2-0000-4000-8000-000000000000"},
            "no project with this id",
        ),
    ],
)
def test_a_wrong_draft_is_explained(
    console: Client, policy: Policy, fields: dict[str, Any], complaint: str
) -> None:
    page = console.post(change(policy), form(seen_revision=1, **fields), follow=True)

    assert complaint in page.content.decode()
    policy.refresh_from_db()
    assert policy.revision == 1


def test_a_strangers_project_is_refused(console: Client, policy: Policy, rival_project: Project) -> None:
    page = console.post(change(policy), form(seen_revision=1, project_ids=str(rival_project.pk)), follow=True)

    assert "no project with this id in your organization" in page.content.decode()


def test_a_draft_is_tried_on_pasted_text(console: Client, policy: Policy) -> None:
    found = console.post(trying(policy), {"text": f"this is {PHRASE}"}).content.decode()
    assert "<strong>Match</strong>" in found
    assert "100.00 %" in found
    assert "<strong>No match</strong>" in console.post(trying(policy), {"text": "x"}).content.decode()
    Policy.objects.update(rule="Is it rude?")

    assert "<strong>Inconclusive</strong>" in console.post(trying(policy), {"text": "x"}).content.decode()
    assert not Verdict.objects.exists()
    policy.refresh_from_db()
    assert policy.revision == 1


def test_too_much_text_is_not_tried(console: Client, policy: Policy) -> None:
    page = console.post(trying(policy), {"text": "x" * 100_001})

    assert "characters can be tried" in page.content.decode()
    assert 'id="trial"' not in page.content.decode()


def test_monitoring_shows_what_each_threshold_would_have_blocked(
    console: Client, published: Policy, project: Project
) -> None:
    assert "no verdicts yet" in console.get(trying(published)).content.decode()
    Verdict.objects.bulk_create([verdict(published, project, score) for score in (0.1, 0.6, 0.97, None)])

    page = " ".join(console.get(trying(published)).content.decode().split())

    assert "latest 3 scores" in page
    assert '<td class="py-2">6000</td> <td class="py-2">2</td> <td class="py-2">67 %</td>' in page


def test_verdicts_are_found_by_any_id_and_by_an_index(
    console: Client, published: Policy, project: Project
) -> None:
    kept = [verdict(published, project, score) for score in (0.1, 0.2)]
    Verdict.objects.bulk_create(kept)
    version = published.current_version
    assert version is not None

    found = {}
    for text in (kept[0].request_id, published.pk, version.pk, project.pk, "nonsense"):
        with CaptureQueriesContext(connection) as asked:
            found[text] = console.get(listing(Verdict), {"q": f" {text} "}).context["cl"].result_count
        # What is compared as text is compared with every row there is.
        assert not [each for each in asked if re.search(r"UPPER|LIKE|::text", each["sql"])]
    assert list(found.values()) == [1, 2, 2, 0, 0]


def test_a_reader_sees_and_cannot_act(published: Policy) -> None:
    reader = get_user_model().objects.create_user("reader", password="x", is_staff=True)
    reader.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(reader)

    assert client.get(listing()).status_code == 200
    page = client.get(trying(published))
    assert page.status_code == 200
    assert "<textarea" not in page.content.decode()
    assert client.post(trying(published), {"text": "x"}).status_code == 403
    assert client.post(change(published), form(seen_revision=2)).status_code == 403
    act(client, "pause", published)
    published.refresh_from_db()
    assert published.state == "enforcing"


def test_who_may_not_see_policies_tries_none(published: Policy) -> None:
    client = Client()
    client.force_login(get_user_model().objects.create_user("guest", is_staff=True))

    assert client.get(trying(published)).status_code == 403
    assert client.post(trying(published), {"text": "x"}).status_code == 403


def test_a_stranger_is_sent_to_the_login(published: Policy) -> None:
    for address in (listing(), change(published), trying(published)):
        assert "/admin/login/" in Client().get(address).headers["Location"]


def test_a_mutation_without_its_token_is_refused(operator: Any, published: Policy) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)

    assert act(client, "pause", published).status_code == 403
    assert client.post(trying(published), {"text": "x"}).status_code == 403


def test_nothing_can_be_deleted_or_forged(console: Client, published: Policy, project: Project) -> None:
    Verdict.objects.bulk_create([verdict(published, project, 0.5)])
    for model in (Policy, PolicyVersion, Verdict):
        row = model._default_manager.first()
        assert row is not None
        name = f"admin:policies_{model._meta.model_name}"
        assert console.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    version = published.current_version
    assert version is not None
    forged = console.post(
        reverse("admin:policies_policyversion_change", args=[version.pk]), {"rule": "Is it?"}
    )
    assert forged.status_code == 403


def test_hostile_words_are_shown_as_text(console: Client, acme: Organization) -> None:
    policy = make_policy(acme, name=HOSTILE, rule=f'Does it say "{HOSTILE}"?')
    pages = [
        console.get(listing()),
        console.get(change(policy)),
        console.post(trying(policy), {"text": HOSTILE + "</textarea><script>alert(1)</script>"}),
        act(console, "publish", policy, confirmed=False),
    ]

    for page in pages:
        assert page.status_code == 200
        assert "<img src=x" not in page.content.decode()
        assert "<script>alert(1)" not in page.content.decode()
        assert "49}}" not in page.content.decode()


def test_a_policy_that_is_not_there(console: Client, policy: Policy, project: Project) -> None:
    address = reverse("admin:policies_policy_try", args=[project.pk])

    assert console.get(address).status_code == 404
