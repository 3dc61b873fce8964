"""People look for requests: by time, project, key, model and status, and by an id that a customer sent."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.models import Reservation
from inference.activity import search
from inference.activity.search import RequestQuery, find
from inference.models import Activity
from organization.models import Organization, Project, ProjectKey
from tests.billing.factories import make_customer
from tests.billing.settled_requests import FIRST, Usage, hold
from tests.factories import make_project_key
from tests.gateway_site.console.clients import customer, owner, person
from tests.inference.activity.factories import LIST, make_request, receipt_address

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def key(project: Project) -> ProjectKey:
    made: ProjectKey = make_project_key(project).key
    return made


@pytest.fixture
def rival_key(rival_project: Project) -> ProjectKey:
    made: ProjectKey = make_project_key(rival_project).key
    return made


def shown(client: Client, **parameters: Any) -> list[uuid.UUID]:
    answer = client.get(LIST, {name: str(value) for name, value in parameters.items()})
    assert answer.status_code == 200, answer.headers
    return [row.pk for row in answer.context["cl"].result_list]


def test_it_works(key: ProjectKey) -> None:
    request = make_request(
        key,
        deployment="vllm/llama-3",
        prompt_tokens=1_234,
        completion_tokens=56,
        cost_nanousd=12_340_000_000,
        first_token_ms=321,
    )

    page = owner().get(LIST).content.decode()

    for text in (
        "Web",
        key.redacted_value,
        "llama",
        "vllm/llama-3",
        "1,234",
        "56",
        "$12.34",
        "321 ms",
        "UTC",
    ):
        assert text in page
    assert f">{str(request.pk)[:8]}</span>" in page
    assert receipt_address(request) in page


def test_the_newest_are_first_and_a_cost_that_is_not_final_is_not_shown(key: ProjectKey) -> None:
    older, newer = make_request(key, ago=timedelta(hours=2)), make_request(key)
    client = owner()

    assert shown(client) == [newer.pk, older.pk]
    table = client.get(LIST).content.decode().partition('id="result_list"')[2].partition("</table>")[0]
    assert "$" not in table


@pytest.mark.slow
def test_each_filter_alone_and_all_together(key: ProjectKey, rival_key: ProjectKey) -> None:
    ours = make_request(key)
    refused = make_request(key, status=429, code="rate_limit_exceeded", model="gpt")
    left = make_request(key, status=499, code="client_closed_request")
    failed = make_request(rival_key, status=503, code="no_backend_available")
    old = make_request(rival_key, ago=timedelta(days=8))
    client = owner()

    assert set(shown(client, project__id__exact=key.project_id)) == {ours.pk, refused.pk, left.pk}
    assert set(shown(client, organization__id__exact=key.project.organization_id)) == {
        ours.pk,
        refused.pk,
        left.pk,
    }
    assert set(shown(client, api_key__id__exact=rival_key.pk)) == {failed.pk, old.pk}
    assert shown(client, model="gpt") == [refused.pk]
    assert set(shown(client, status="ok")) == {ours.pk, old.pk}
    assert set(shown(client, status="refused")) == {refused.pk, left.pk}
    assert shown(client, status="failed") == [failed.pk]
    assert shown(client, status="429") == [refused.pk]
    assert old.pk not in shown(client, when="7d")
    assert len(shown(client, when="30d")) == 5
    assert shown(client, to=f"{old.ended_at:%Y-%m-%d}") == [old.pk]
    since = old.ended_at + timedelta(days=1)
    assert len(shown(client, **{"from": f"{since:%Y-%m-%dT%H:%M}"})) == 4
    everything: dict[str, Any] = {
        "project__id__exact": rival_key.project_id,
        "organization__id__exact": rival_key.project.organization_id,
        "api_key__id__exact": rival_key.pk,
        "model": "llama",
        "status": "failed",
        "when": "1h",
    }
    assert shown(client, **everything) == [failed.pk]
    assert shown(client, **{**everything, "model": "gpt"}) == []
    # Another's project with our key is nobody's.
    assert shown(client, api_key__id__exact=key.pk, project__id__exact=rival_key.project_id) == []
    assert shown(client, api_key__id__exact=uuid.uuid4()) == []


def test_a_search_for_several_things_stops_in_time_and_says_so(
    key: ProjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_ROWS_READ", 3)
    for minutes in range(2, 8):
        make_request(key, ago=timedelta(minutes=minutes), status=429)
    oldest = make_request(key, ago=timedelta(minutes=10), status=503)
    client = owner()

    # Few went wrong, so all of those are looked at, though the project has more than are.
    assert shown(client, project__id__exact=key.project_id, status="failed") == [oldest.pk]
    page = client.get(LIST, {"model": "llama", "project__id__exact": str(key.project_id)})
    assert len(page.context["cl"].result_list) == 4
    assert 'id="looked-at"' in page.content.decode()
    monkeypatch.setattr(search, "MAX_FOUND", 2)
    page = client.get(LIST, {"model": "llama", "project__id__exact": str(key.project_id)})
    assert len(page.context["cl"].result_list) == 2
    assert 'id="cut"' in page.content.decode()
    # One condition is answered by its index, however many there are.
    assert len(shown(client, project__id__exact=key.project_id)) == 7


def test_a_search_for_several_things_goes_by_the_rarest(
    key: ProjectKey, rival_key: ProjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_ROWS_READ", 3)
    for minutes in range(1, 6):
        make_request(key, ago=timedelta(minutes=minutes), status=429)
        make_request(rival_key, ago=timedelta(hours=minutes), status=429)

    # More were refused than are looked at, and so were this project's; but its own go back further.
    assert len(shown(owner(), project__id__exact=rival_key.project_id, status="refused")) == 4


@pytest.mark.parametrize("form", ["{}", "{:.18}", "{:.8}", "chatcmpl-{}", "resp_{}", "  {}\n"])
def test_an_id_as_the_customer_sends_it_leads_to_the_receipt(key: ProjectKey, form: str) -> None:
    request = make_request(key)
    make_request(key)
    identifier = request.pk.hex if "_" in form or "chat" in form else str(request.pk)

    answer = owner().get(LIST, {"q": form.format(identifier), "status": "failed"})

    assert answer.status_code == 302
    assert answer.headers["Location"] == receipt_address(request)


def test_the_first_digits_of_several_list_them(key: ProjectKey) -> None:
    start = "0123456789ab"
    twins = [make_request(key, id=uuid.UUID(f"{start}4{end:019x}")).pk for end in (1, 2)]
    make_request(key, id=uuid.UUID("0123456889ab40000000000000000000"))

    assert shown(owner(), q=start) == twins


@pytest.mark.parametrize(
    "text", ["0123456", "nonsense", "chatcmpl-", "012345678901234567890123456789012", "--------"]
)
def test_what_is_no_id_is_said_to_be_none(key: ProjectKey, text: str) -> None:
    make_request(key)

    page = owner().get(LIST, {"q": text}).content.decode()

    assert "at least its first 8 digits" in page
    assert 'id="result_list"' not in page


def test_a_request_whose_process_died_is_found_in_the_ledger() -> None:
    [admitted] = hold(Usage(make_customer(credit=10**9), FIRST, prompt=5))
    address = reverse("admin:billing_reservation_change", args=[admitted.id])
    client = owner()

    found = client.get(LIST, {"q": str(admitted.id)}).content.decode()
    by_receipt = client.get(reverse("admin:inference_activity_change", args=[admitted.id]), follow=True)

    assert Reservation.objects.get(pk=admitted.id).state == "held"
    for page in (found, by_receipt.content.decode()):
        assert address in page
        assert "the ledger has it" in page
    stranger = person("inference.view_activity").get(LIST, {"q": str(admitted.id)}).content.decode()
    assert address not in stranger


def test_an_empty_list_says_what_to_do(key: ProjectKey) -> None:
    client = owner()
    assert "Give a project a key" in client.get(LIST).content.decode()

    make_request(key)
    page = client.get(LIST, {"status": "failed"}).content.decode()

    assert "Nothing for this filter" in page
    assert 'href="?"' in page


def test_fields_left_empty_are_not_kept_in_the_address(key: ProjectKey) -> None:
    answer = owner().get(
        LIST, {"status": "failed", "model": "", "when": "1h", "from": "2026-01-01T00:00", "to": ""}
    )

    assert answer.headers["Location"] == f"{LIST}?status=failed&from=2026-01-01T00%3A00"


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "bad"},
        {"status": "999"},
        {"status": "²"},
        {"when": "5y"},
        {"from": "yesterday"},
        {"to": "9999-12-31"},
        {"project__id__exact": "1"},
        {"api_key__id__exact": HOSTILE},
    ],
)
def test_a_filter_that_cannot_be_is_dropped(key: ProjectKey, bad: dict[str, str]) -> None:
    make_request(key)

    answer = owner().get(LIST, bad)

    assert (answer.status_code, answer.headers["Location"]) == (302, f"{LIST}?e=1")


@pytest.mark.parametrize("lookup", ["code__contains", "endpoint", "project__name", "total_ms__gt", "id__gt"])
def test_no_other_question_is_asked_of_so_large_a_table(key: ProjectKey, lookup: str) -> None:
    assert owner().get(LIST, {lookup: "1"}).status_code == 400


def test_a_hostile_name_is_only_text(acme: Organization) -> None:
    project = Project.objects.create(organization=acme, name=HOSTILE)
    make_request(make_project_key(project).key, model=HOSTILE, code=HOSTILE, deployment=HOSTILE)

    page = owner().get(LIST, {"model": HOSTILE}).content.decode()

    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4


def test_who_may_not_see_money_sees_no_cost(key: ProjectKey) -> None:
    make_request(key, cost_nanousd=12_340_000_000)

    assert "$12.34" not in person("inference.view_activity").get(LIST).content.decode()


def test_a_stranger_sees_nothing(key: ProjectKey) -> None:
    request = make_request(key)

    for client in (Client(), customer()):
        assert client.get(LIST).status_code == 302
        assert client.get(receipt_address(request)).status_code == 302
    stranger = person("billing.view_account")
    # Not even whether there is such a request.
    for parameters in ({}, {"q": str(request.pk)}, {"model": ""}):
        assert stranger.get(LIST, parameters).status_code == 403
    assert stranger.get(receipt_address(request)).status_code == 403


@pytest.mark.parametrize("count", [1, 30])
def test_the_list_takes_as_few_queries_for_any_number_of_rows(
    acme: Organization, count: int, django_assert_max_num_queries: Any
) -> None:
    for number in range(count):
        project = Project.objects.create(organization=acme, name=f"Project {number}")
        make_request(make_project_key(project).key)
    client = owner()
    filters = {"organization__id__exact": str(acme.pk), "model": "llama", "status": "ok", "when": "1h"}

    # Counts beside the filters' choices are not to be had: each would read the whole table.
    with django_assert_max_num_queries(9):
        client.get(LIST, {"_facets": "True"})
    with django_assert_max_num_queries(14):
        client.get(LIST, filters)


# --- how the database finds them ----------------------------------------------------------------------

QUESTIONS: dict[str, tuple[RequestQuery, list[str]]] = {
    "nothing": (RequestQuery(), ["activity_newest"]),
    "project": (RequestQuery(project_id=uuid.uuid4()), ["activity_of_project"]),
    "organization": (RequestQuery(organization_id=uuid.uuid4()), ["activity_of_organization"]),
    "model": (RequestQuery(model="llama"), ["activity_of_model"]),
    "failed": (RequestQuery(status="failed"), ["activity_server_failed"]),
    "refused": (RequestQuery(status="refused"), ["activity_failed"] * 2),
    "ok": (RequestQuery(status="ok"), ["activity_newest"] * 2),
    "one status": (RequestQuery(status="429"), ["activity_failed"] * 2),
    "organization and failed": (
        RequestQuery(organization_id=uuid.uuid4(), status="failed"),
        ["activity_server_failed"] * 2,
    ),
    "project and model": (RequestQuery(project_id=uuid.uuid4(), model="llama"), ["activity_of_project"] * 2),
    "model and ok": (RequestQuery(model="llama", status="ok"), ["activity_of_model"] * 2),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered_by_an_index(question: str) -> None:
    """With no row there: what could be used is seen, and not what pays for so few rows."""
    asked, indexes = QUESTIONS[question]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for way in ("seqscan", "bitmapscan", "sort"):
                cursor.execute(f"SET LOCAL enable_{way} = off")

    with CaptureQueriesContext(connection) as made:
        list(find(Activity.objects.all(), asked).requests[:50])

    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    plans = []
    with connection.cursor() as cursor:
        for query in made.captured_queries:
            cursor.execute(f"{explain} {query['sql']}")
            plans.append(str(cursor.fetchall()))
    assert [index in plan for index, plan in zip(indexes, plans, strict=True)] == [True] * len(plans), plans
    assert not any("Sort" in plan or "TEMP B-TREE" in plan for plan in plans)
