"""Staff talk to a model as a customer does: with a key, on the customers' endpoint, at the project's cost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.models import Reservation
from gateway_site.console.playground.keys import SESSION_ENTRY
from inference.activity.writer import writer
from organization import services
from organization.models import AuditEvent, KeyStatus, Organization, Project, ProjectKey
from policies.verdicts.writer import writer as verdicts
from tests.factories import SOMEONE, make_project_key
from tests.gateway_site.console.clients import customer, owner, person
from tests.harness.client import exchange
from tests.inference.activity.factories import make_request
from tests.inference.catalog.factories import make_model, make_served_model
from tests.inference.customer import ApiCustomer, customer_of, question, records, text_of
from tests.policies.factories import PHRASE, make_published

HOSTILE = "<script>alert(1)</script>"
PERMISSIONS = ("inference.use_playground", "inference.view_activity", "policies.view_verdict")


@pytest.fixture
def api_customer(transactional_db: None, project: Project) -> Iterator[ApiCustomer]:
    with customer_of(project) as made:
        yield made


def take_key(client: Client, project: Project) -> str:
    answer = client.post(reverse("playground-session"), {"project": str(project.pk)})
    assert answer.status_code == 200
    return str(answer.json()["value"])


def receipt_of(client: Client, request_id: str) -> dict[str, Any]:
    writer.flush()
    verdicts.flush()
    told: dict[str, Any] = client.get(reverse("playground-receipt", args=[request_id])).json()
    return told


# --- with money ---


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_a_playground_request_is_answered_and_has_a_receipt(api_customer: ApiCustomer, stream: bool) -> None:
    api_customer.simulate("echo")
    ada = owner()
    value = take_key(ada, api_customer.project)

    answer = api_customer.post(question("echo", "hello you", stream=stream), key=value)
    receipt = receipt_of(ada, answer.headers["x-request-id"])

    assert answer.status == 200
    assert text_of(answer) == "hello you"
    reservation = api_customer.reservation()
    key = ProjectKey.objects.get(name="Playground of ada")
    assert (reservation.project_id, reservation.api_key_id) == (api_customer.project.pk, key.pk)
    assert reservation.state == Reservation.State.SETTLED
    assert (receipt["is_ready"], receipt["status"], receipt["verdicts"]) == (True, 200, [])
    assert receipt["completion_tokens"] == 2
    assert receipt["cost"].startswith("$0.0000000")
    assert receipt["url"] == reverse("admin:inference_activity_change", args=[answer.headers["x-request-id"]])


def test_the_key_is_short_lived_and_may_do_one_thing(api_customer: ApiCustomer) -> None:
    ada = owner()
    take_key(ada, api_customer.project)

    key = ProjectKey.objects.get(name="Playground of ada")
    assert key.project == api_customer.project
    assert key.permissions == ["inference:write"]
    assert key.expires_at is not None
    assert timedelta(minutes=59) < key.expires_at - timezone.now() <= timedelta(hours=1)
    event = AuditEvent.objects.latest("id")
    assert (event.action, event.actor_kind, event.actor_label) == ("project_key.create", "staff", "ada")
    assert event.target_id == str(key.pk)


def test_the_value_of_a_playground_key_is_sent_once_and_stored_nowhere(api_customer: ApiCustomer) -> None:
    ada = owner()
    answer = ada.post(reverse("playground-session"), {"project": str(api_customer.project.pk)})
    value = answer.json()["value"]

    assert "no-store" in answer["Cache-Control"]
    kept = [*ProjectKey.objects.values_list(), *AuditEvent.objects.values_list(), dict(ada.session)]
    assert value not in str(kept)
    assert value not in ada.get(reverse("playground")).content.decode()


def test_a_new_key_ends_the_one_before(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    ada = owner()
    first = take_key(ada, api_customer.project)
    second = take_key(ada, api_customer.project)

    assert api_customer.post(question("echo"), key=first).status == 401
    assert api_customer.post(question("echo"), key=second).status == 200
    assert ProjectKey.objects.filter(name="Playground of ada", revoked_at=None).count() == 1


def test_leaving_the_page_ends_the_key(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    ada = owner()
    value = take_key(ada, api_customer.project)

    assert ada.post(reverse("playground-end")).status_code == 204
    assert ada.post(reverse("playground-end")).status_code == 204

    assert api_customer.post(question("echo"), key=value).status == 401
    assert SESSION_ENTRY not in ada.session
    trail = AuditEvent.objects.order_by("-id").values_list("action", "actor_label")
    assert trail[0] == ("project_key.revoke", "ada")


def test_nobody_ends_anothers_key(api_customer: ApiCustomer) -> None:
    take_key(owner(), api_customer.project)
    other = person(*PERMISSIONS)
    other.post(reverse("playground-end"))
    take_key(other, api_customer.project)

    own = ProjectKey.objects.filter(name__startswith="Playground of ")
    assert {key.status for key in own} == {KeyStatus.ACTIVE}
    assert api_customer.key.status is KeyStatus.ACTIVE


def test_policies_judge_it_and_say_so(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    make_published(api_customer.project.organization, name=HOSTILE)
    ada = owner()
    value = take_key(ada, api_customer.project)

    refused = api_customer.post(question("echo", f"this is {PHRASE}"), key=value)
    passed = api_customer.post(question("echo", "this is for all"), key=value)

    assert (refused.status, refused.error["code"]) == (403, "policy_violation")
    receipt = receipt_of(ada, refused.headers["x-request-id"])
    assert (receipt["status"], receipt["cost"]) == (403, "$0.00")
    [verdict] = receipt["verdicts"]
    assert (verdict["policy"], verdict["outcome"], verdict["mode"]) == (HOSTILE, "match", "enforcing")
    assert (verdict["score"], verdict["threshold"]) == ("100.00%", "50.00%")
    outcomes = [each["outcome"] for each in receipt_of(ada, passed.headers["x-request-id"])["verdicts"]]
    assert outcomes == ["no_match", "no_match"]
    blind = person("inference.view_activity")
    assert receipt_of(blind, refused.headers["x-request-id"])["verdicts"] == []


def test_without_credit_it_is_refused_as_a_customer_is(
    api_customer: ApiCustomer, rival_project: Project
) -> None:
    api_customer.simulate("echo")
    ada = owner()
    value = take_key(ada, rival_project)

    answer = api_customer.post(question("echo"), key=value)

    assert (answer.status, answer.error["code"]) == (402, "insufficient_credit")
    assert not Reservation.objects.exists()


def test_a_browsers_own_headers_change_nothing(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    ada = owner()
    value = take_key(ada, api_customer.project)
    browser = {
        "Origin": "http://localhost",
        "Referer": "http://localhost/admin/playground/",
        "Sec-Fetch-Site": "same-origin",
        "Cookie": f"sessionid={ada.cookies['sessionid'].value}",
    }

    answer = api_customer.post(question("echo", stream=True), key=value, headers=browser)

    assert answer.status == 200
    assert records(answer.body)[-1] == "[DONE]"


def test_being_logged_in_opens_nothing_to_customers(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    cookie = f"sessionid={owner().cookies['sessionid'].value}"
    body = json.dumps(question("echo")).encode()
    headers = [("Cookie", cookie), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]

    for path in ("/v1/chat/completions", "/v1/responses"):
        assert exchange("POST", path, headers, [body]).status == 401
    assert exchange("GET", "/v1/models", [("Cookie", cookie)]).status == 401
    assert not Reservation.objects.exists()


# --- the page ---


@pytest.mark.django_db
def test_the_page_offers_the_models_that_can_be_served(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    services.create_project(organization=project.organization, name=HOSTILE, actor=SOMEONE)
    ended, _ = services.create_project(organization=project.organization, name="Ended", actor=SOMEONE)
    services.archive_project(project=ended, actor=SOMEONE)
    for number in range(5):
        make_served_model(f"model-{number}")
        make_served_model(f"free-{number}", prices=None)
        make_model(f"homeless-{number}")
    ada = owner()
    ada.get("/admin/")

    with django_assert_max_num_queries(8):
        shown = ada.get(reverse("playground"), {"project": str(project.pk)}).content.decode()

    assert f'<option value="{project.pk}" selected>Web</option>' in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert HOSTILE not in shown
    assert str(ended.pk) not in shown
    assert shown.count('<option value="model-') == 5
    assert '<option value="free-' not in shown
    assert '<option value="homeless-' not in shown
    assert not ProjectKey.objects.exists()  # looking makes nothing


@pytest.mark.django_db
def test_the_page_says_what_is_missing(acme: Organization) -> None:
    ada = owner()
    assert "Create a project first" in ada.get(reverse("playground")).content.decode()

    services.create_project(organization=acme, name="Web", actor=SOMEONE)
    shown = ada.get(reverse("playground")).content.decode()

    assert "No model is available" in shown
    assert reverse("admin:inference_catalogmodel_changelist") in shown


@pytest.mark.django_db
def test_many_projects_are_cut_and_the_chosen_one_is_not(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_served_model()
    monkeypatch.setattr("gateway_site.console.playground.views.MOST_PROJECTS", 1)
    services.create_project(organization=project.organization, name="A first", actor=SOMEONE)

    shown = owner().get(reverse("playground"), {"project": str(project.pk)}).content.decode()

    assert "A first" in shown
    assert f'<option value="{project.pk}" selected>' in shown


# --- strangers ---


@pytest.mark.django_db
def test_who_may_only_look_cannot_play(project: Project) -> None:
    read_only = person("inference.view_activity", "organization.view_project", "inference.view_catalogmodel")

    assert read_only.get(reverse("playground")).status_code == 403
    assert read_only.post(reverse("playground-session"), {"project": str(project.pk)}).status_code == 403
    assert read_only.post(reverse("playground-end")).status_code == 403
    assert not ProjectKey.objects.exists()


@pytest.mark.django_db
def test_who_may_play_and_not_look_gets_no_receipt(project: Project) -> None:
    request = make_request(make_project_key(project).key)
    player = person("inference.use_playground")

    assert player.get(reverse("playground-receipt", args=[request.pk])).status_code == 403
    assert Client().get(reverse("playground-receipt", args=[request.pk])).status_code == 302


@pytest.mark.django_db
@pytest.mark.parametrize("someone", [Client, customer])
def test_a_stranger_is_sent_to_log_in(project: Project, someone: Any) -> None:
    client = someone()

    assert client.get(reverse("playground")).status_code == 302
    assert client.post(reverse("playground-session"), {"project": str(project.pk)}).status_code == 302
    assert not ProjectKey.objects.exists()


@pytest.mark.django_db
def test_another_sites_page_and_a_link_make_no_key(project: Project) -> None:
    user = get_user_model().objects.create_superuser("ada", password="x")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)

    assert client.post(reverse("playground-session"), {"project": str(project.pk)}).status_code == 403
    assert client.get(reverse("playground-session"), {"project": str(project.pk)}).status_code == 405
    assert not ProjectKey.objects.exists()


@pytest.mark.django_db
def test_another_sites_page_and_a_link_end_no_key(project: Project) -> None:
    ada = owner()
    take_key(ada, project)
    ada.handler.enforce_csrf_checks = True

    assert ada.get(reverse("playground-end")).status_code == 405
    assert ada.post(reverse("playground-end")).status_code == 403

    assert ProjectKey.objects.get().status is KeyStatus.ACTIVE
    assert SESSION_ENTRY in ada.session


@pytest.mark.django_db
def test_a_project_that_is_gone_is_said(project: Project) -> None:
    services.archive_project(project=project, actor=SOMEONE)
    ada = owner()

    for text, status in ((str(project.pk), 409), (str(uuid.uuid4()), 404), ("all", 404), ("", 404)):
        answer = ada.post(reverse("playground-session"), {"project": text})
        assert (answer.status_code, bool(answer.json()["message"])) == (status, True)
    assert not ProjectKey.objects.exists()


@pytest.mark.django_db
def test_a_request_that_is_not_written_yet_is_waited_for() -> None:
    assert owner().get(reverse("playground-receipt", args=[uuid.uuid4()])).json() == {"is_ready": False}
