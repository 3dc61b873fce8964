"""Support reads the receipt of a request: what happened, what was held and charged, what judges said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.models import CostLine, Reservation
from billing.money import usd
from inference.models import Activity
from organization.models import Project, ProjectKey
from policies import services
from policies.models import Verdict
from policies.verdicts.writer import writer as verdicts
from tests.billing.factories import PRICE, Customer, make_customer
from tests.billing.settled_requests import Usage as Used
from tests.billing.settled_requests import hold, settle
from tests.factories import SOMEONE, make_project_key
from tests.gateway_site.console.clients import customer, owner, person
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.activity.factories import make_request, receipt_address
from tests.inference.admin.pages import HOSTILE, MONEY, read
from tests.inference.customer import ApiCustomer, customer_of
from tests.policies.factories import verdict


@pytest.fixture
def api_customer(transactional_db: None, project: Project) -> Iterator[ApiCustomer]:
    with customer_of(project) as made:
        yield made


@pytest.fixture
def key(project: Project) -> ProjectKey:
    made: ProjectKey = make_project_key(project).key
    return made


def test_it_works(api_customer: ApiCustomer) -> None:
    api_customer.simulate("thinker")
    policy = services.create_policy(
        organization=api_customer.project.organization,
        actor=SOMEONE,
        name="Secrets",
        rule='Does it contain "secret"?',
    )
    services.publish_policy(policy=policy, mode="enforcing", actor=SOMEONE)
    api_customer.ask("thinker", stream=True)
    request = api_customer.activity()
    verdicts.flush()
    reservation = api_customer.reservation()

    page = read(owner(), request)

    assert str(request.pk) in page
    for fact in (
        "Acme",
        api_customer.key.redacted_value,
        "thinker",
        "/v1/chat/completions",
        "as a stream",
        "answered",
    ):
        assert fact in page
    assert "simulator/thinker" in page
    assert f"${usd(reservation.reserved_nanousd)}" in page
    lines = CostLine.objects.filter(reservation=reservation)
    assert len(lines) >= 2
    for line in lines:
        assert f"${usd(line.amount_nanousd)}" in page
    assert reservation.charged_nanousd == sum(line.amount_nanousd for line in lines)
    assert f"${usd(reservation.reserved_nanousd - reservation.charged_nanousd)} of the hold went back" in page
    assert "reported usage" in page
    verdict = Verdict.objects.first()
    assert verdict is not None
    assert "Secrets v1" in page
    assert "no match" in page
    assert reverse("admin:policies_policyversion_change", args=[verdict.version_id]) in page
    assert reverse("admin:billing_reservation_change", args=[reservation.pk]) in page


def test_one_that_was_refused_before_it_was_admitted(api_customer: ApiCustomer) -> None:
    api_customer.ask("nothing")

    page = read(owner(), api_customer.activity())

    for text in ("404", "model_not_found", "No backend was asked", "Nothing was held", "No policy judged"):
        assert text in page


# --- made of rows -------------------------------------------------------------------------------------


def settled_request(customer: Customer, **fields: Any) -> Activity:
    settle(Used(customer, make_request(customer.key).ended_at.date(), prompt=30, completion=20))
    return make_request(customer.key, id=Reservation.objects.get().pk, **fields)


def test_each_line_is_a_quantity_at_a_price(db: None) -> None:
    request = settled_request(make_customer(credit=10**9), cost_nanousd=50)

    page = read(owner(), request)

    assert PRICE.rates["prompt"].picousd * 10**6 == 10**9  # pico-USD
    assert page.count("$0.001 per million tokens") == 2
    for amount in ("$0.00000003", "$0.00000002", "$0.00000005"):
        assert amount in page
    assert_books_balance()


def test_a_cost_that_the_ledger_does_not_know_is_not_denied(key: ProjectKey) -> None:
    page = read(owner(), make_request(key, cost_nanousd=50))

    assert "The ledger has no reservation of this id" in page
    assert "was not admitted" not in page


def test_one_that_is_still_open_is_not_final(db: None) -> None:
    customer = make_customer(credit=10**9)
    hold(Used(customer, make_request(customer.key).ended_at.date(), prompt=30))
    request = make_request(customer.key, id=Reservation.objects.get().pk)

    page = read(owner(), request)

    assert "Not final yet" in page
    assert "went back" not in page
    assert "<dt>Deadline</dt>" in page


def test_one_that_is_over_has_no_deadline(db: None) -> None:
    request = settled_request(make_customer(credit=10**9))
    ada = owner()

    assert "<dt>Settled</dt>" in read(ada, request)
    assert "Deadline" not in read(ada, request)
    hold_page = ada.get(reverse("admin:billing_reservation_change", args=[request.pk])).content.decode()
    assert re.search(r"Deadline\s*</label>.*?<div[^>]*>\s*-?\s*</div>", hold_page, re.DOTALL)


@pytest.mark.parametrize("model", ["fails-500", "fails-refused", "fails-cut-midway", "fails-rejected"])
def test_an_attempt_that_failed_began_and_ended(api_customer: ApiCustomer, model: str) -> None:
    api_customer.simulate(model)
    api_customer.ask(model, stream=model == "fails-cut-midway")

    page = read(owner(), api_customer.activity())

    cells = re.findall(r'<td class="is-number">([^<]*)</td>', page.split('id="receipt-attempts"')[1])
    assert len(cells) >= 2
    assert all(re.fullmatch(r"[\d,]+ ms", cell) for cell in cells[:2])


def test_every_attempt_has_its_place_in_time(key: ProjectKey) -> None:
    log = [
        {"deployment": "a/llama", "began_ms": 0, "ended_ms": 500, "code": "upstream_error"},
        {"deployment": "b/llama", "began_ms": 500, "ended_ms": 2_000, "code": ""},
    ]
    request = make_request(key, attempt_log=log, attempts=2, first_token_ms=700)

    page = read(owner(), request)

    assert "--begins-at: 0.00%; --takes: 25.00%" in page
    assert "--begins-at: 25.00%; --takes: 75.00%" in page
    assert "upstream_error" in page
    first = request.created_at + timedelta(milliseconds=700)
    assert f"{first:%Y-%m-%d %H:%M:%S} UTC" in page


def test_who_may_not_see_money_or_verdicts_sees_neither(api_customer: ApiCustomer) -> None:
    api_customer.simulate("echo")
    api_customer.ask("echo")
    request = api_customer.activity()

    page = read(person("inference.view_activity"), request)

    assert str(request.pk) in page
    for part in ("receipt-hold", "receipt-charge", "receipt-verdicts", "/admin/organization/project/"):
        assert part not in page


@pytest.mark.parametrize(
    ("permissions", "seen", "unseen"),
    [
        (MONEY, "receipt-charge", "receipt-verdicts"),
        (["policies.view_verdict"], "receipt-verdicts", "receipt-charge"),
        # A part of what money is made of is not enough.
        (MONEY[:1], "receipt-request", "receipt-charge"),
    ],
)
def test_each_part_has_its_own_permission(db: None, permissions: list[str], seen: str, unseen: str) -> None:
    request = settled_request(make_customer(credit=10**9))

    page = read(person("inference.view_activity", *permissions), request)

    assert f'id="{seen}"' in page
    assert f'id="{unseen}"' not in page


def test_who_may_not_see_requests_reads_no_receipt(key: ProjectKey) -> None:
    request = make_request(key)

    for reader in (person(*MONEY, "policies.view_verdict"), customer(), Client()):
        answer = reader.get(receipt_address(request))
        assert answer.status_code in (302, 403)
        assert key.redacted_value not in answer.content.decode()


def test_nothing_is_changed_here(key: ProjectKey) -> None:
    request = make_request(key)

    assert owner().post(receipt_address(request), {"status": 200}).status_code == 403
    delete = reverse("admin:inference_activity_delete", args=[request.pk])
    assert owner_again().post(delete, {"post": "yes"}).status_code == 403
    assert Activity.objects.filter(pk=request.pk).exists()


def owner_again() -> Client:
    return person("inference.view_activity", "inference.delete_activity")


def test_a_hostile_name_is_only_text(key: ProjectKey) -> None:
    log = [{"deployment": HOSTILE, "began_ms": 0, "ended_ms": 1, "code": HOSTILE}]
    request = make_request(key, model=HOSTILE, code=HOSTILE, endpoint=HOSTILE, attempt_log=log)

    page = read(owner(), request)

    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5


@pytest.mark.parametrize("identifier", ["nonsense", "1234", "0123456789ab4cdef", "../.."])
def test_an_address_without_a_request_leads_to_the_search(db: None, identifier: str) -> None:
    answer = owner().get(
        reverse("admin:inference_activity_change", args=["x"]).replace("/x/", f"/{identifier}/")
    )

    assert answer.status_code in (302, 404)


def test_a_score_just_below_its_threshold_is_not_shown_as_the_threshold(project: Project) -> None:
    request = make_request(make_project_key(project).key)
    policy = services.create_policy(
        organization=project.organization, actor=SOMEONE, name="Policy", rule="Is it?"
    )
    near = verdict(services.publish_policy(policy=policy, actor=SOMEONE), project, 0.4996)
    near.request_id = request.pk
    near.save()

    page = read(owner(), request)

    assert "49.96%" in page
    assert "50.00%" in page


@pytest.mark.parametrize("count", [1, 20])
def test_it_takes_as_few_queries_for_any_number_of_verdicts(
    project: Project, count: int, django_assert_max_num_queries: Any
) -> None:
    request = make_request(make_project_key(project).key)
    for number in range(count):
        policy = services.create_policy(
            organization=project.organization, actor=SOMEONE, name=f"Policy {number}", rule="Is it?"
        )
        services.publish_policy(policy=policy, actor=SOMEONE)
        Verdict.objects.create(
            version=policy.versions.get(),
            project=project,
            request_id=request.pk,
            direction="response",
            mode="monitoring",
            outcome="inconclusive",
            threshold_basis_points=5_000,
            judge="quoted",
            latency_ms=3,
            reason="timeout",
        )
    client = owner()

    with django_assert_max_num_queries(6):
        page = read(client, request)

    assert page.count("timeout") == count
