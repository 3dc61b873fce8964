"""An administrator reads what the organization was charged."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from billing.ledger.operations import MarkUnknown, Reconcile, Release
from billing.models import Reservation
from billing.reports import cost_report
from billing.reports import query as report_query
from billing.reports.rollup import roll_up
from organization import services
from organization.models import Project
from tests.billing.factories import FREE, PRICE, SOMEONE, Customer, make_customer, make_key
from tests.billing.reports.helpers import START, URL, results
from tests.billing.settled_requests import DAY, FIRST, Usage, after, apply, hold, midnight, settle
from tests.factories import make_admin_key
from tests.harness.client import ApiClient

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def ours(db: None) -> Customer:
    return make_customer(credit=10**12)


@pytest.fixture
def api(ours: Customer) -> ApiClient:
    return ApiClient(make_admin_key(ours.organization).value)


def amounts(found: list[Any]) -> list[list[str]]:
    return [[result["amount"]["value"] for result in bucket] for bucket in found]


def test_the_report_has_a_bucket_with_the_settled_costs_of_a_day(api: ApiClient, ours: Customer) -> None:
    settle(Usage(ours, FIRST, prompt=1_500, completion=500), Usage(ours, FIRST, prompt=250_000_000))

    answer = api.get(f"{URL}?start_time={START}&end_time={START + DAY}")

    assert answer.status == 200
    assert answer.json == {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": START,
                "end_time": START + DAY,
                "results": [
                    {
                        "object": "organization.costs.result",
                        "amount": {"value": "0.250002", "currency": "usd"},
                        "line_item": None,
                        "project_id": None,
                        "api_key_id": None,
                    }
                ],
            }
        ],
        "has_more": False,
        "next_page": None,
    }


def test_each_dimension_is_told_where_it_is_asked_for(api: ApiClient, ours: Customer) -> None:
    other = ours.another_key()
    settle(Usage(ours, FIRST, 5, 7), Usage(other, FIRST, 11, 0), Usage(ours, FIRST, 13, model="llama"))
    ids = sorted([(str(ours.key.pk), ours), (str(other.key.pk), other)])

    by_item = results(api, "&group_by=line_item")[0]
    by_key = results(api, "&group_by=api_key_id")[0]
    by_all = results(api, "&group_by=line_item,api_key_id&group_by[]=project_id")[0]

    assert [(each["line_item"], each["amount"]["value"]) for each in by_item] == [
        ("gpt, completion", "0.000000007"),
        ("gpt, prompt", "0.000000016"),
        ("llama, prompt", "0.000000013"),
    ]
    assert {each["project_id"] for each in by_item} == {each["api_key_id"] for each in by_item} == {None}
    assert [each["api_key_id"] for each in by_key] == [text for text, _ in ids]
    assert len(by_all) == 4
    assert {each["project_id"] for each in by_all} == {str(ours.project.pk)}


def test_filters_narrow_the_report(api: ApiClient, ours: Customer) -> None:
    project = Project.objects.create(organization=ours.organization, name="Other")
    other = Customer(ours.organization, project, make_key(project))
    settle(Usage(ours, FIRST, 1), Usage(ours.another_key(), FIRST, 2), Usage(other, FIRST, 4))

    assert amounts(results(api, f"&project_ids={ours.project.pk}")) == [["0.000000003"]]
    assert amounts(results(api, f"&api_key_ids={ours.key.pk}")) == [["0.000000001"]]
    assert amounts(results(api, f"&api_key_ids={ours.key.pk},{other.key.pk}")) == [["0.000000005"]]
    assert results(api, f"&project_ids={project.pk}&api_key_ids={ours.key.pk}") == [[]]


def test_days_without_costs_are_there_and_empty(api: ApiClient, ours: Customer) -> None:
    settle(Usage(ours, after(2), 5))

    assert amounts(results(api, days=4)) == [[], [], ["0.000000005"], []]


def test_the_end_is_now_unless_given(api: ApiClient, ours: Customer) -> None:
    now = datetime.now(UTC)
    today = midnight(now.date())
    settle(Usage(ours, now.date(), 5), clock=now.time())

    page = api.get(f"{URL}?start_time={today - 2 * DAY}").json

    assert [each["start_time"] for each in page["data"]][:3] == [today - 2 * DAY, today - DAY, today]
    assert page["data"][2]["results"]
    # The second that is running is in.
    assert api.get(f"{URL}?start_time={int(datetime.now(UTC).timestamp())}").status == 200


# --- what is final -----------------------------------------------------------------------------------


def test_a_zero_is_final_and_unsettled_usage_is_no_zero(api: ApiClient, ours: Customer) -> None:
    settle(Usage(ours, FIRST, 10, 10, price=FREE))
    hold(Usage(ours, after(1), 10, 10), clock=time(12))
    unknown = hold(Usage(ours, after(2), 10, 10, price=FREE))[0]
    released = hold(Usage(ours, after(3), 10, 10))[0]
    apply(after(2), time(13), [MarkUnknown(unknown.id, ours.organization.pk)])
    apply(after(3), time(13), [Release(released.id, ours.organization.pk)])

    found = results(api, days=4)

    assert amounts(found) == [["0"], [], [], []]
    end_open_holds(ours)


def test_a_request_never_moves_to_another_day(api: ApiClient, ours: Customer) -> None:
    late = hold(Usage(ours, FIRST, 10, 10))[0]
    apply(after(0), time(23), [MarkUnknown(late.id, ours.organization.pk)])
    assert results(api, days=3) == [[], [], []]

    apply(after(2), time(9), [Reconcile(late.id, ours.organization.pk, 15)])

    assert amounts(results(api, days=3)) == [["0.000000015"], [], []]
    assert results(api, "&group_by=line_item")[0][0]["line_item"] == "gpt, reconciled"


def test_a_group_with_nothing_but_unsettled_usage_is_not_there(api: ApiClient, ours: Customer) -> None:
    settle(Usage(ours, FIRST, 3))
    hold(Usage(ours.another_key(), FIRST, 10))

    assert [each["api_key_id"] for each in results(api, "&group_by=api_key_id")[0]] == [str(ours.key.pk)]
    end_open_holds(ours)


def end_open_holds(customer: Customer) -> None:
    """Their leases ran out long ago, which the check of the books would not let pass."""
    for row in Reservation.objects.filter(organization=customer.organization, state="held"):
        apply(FIRST, time(14), [Release(row.pk, customer.organization.pk)])


# --- amounts -----------------------------------------------------------------------------------------


def test_amounts_are_exact_where_floating_point_would_not_be(api: ApiClient, ours: Customer) -> None:
    ours.grant(10**18)
    settle(Usage(ours, FIRST, 900_000_000_000), Usage(ours, FIRST, 1))
    settle(*(Usage(ours, after(1), 100_000_000) for _ in range(3)))

    assert amounts(results(api, days=2)) == [["900.000000001"], ["0.3"]]


def test_the_report_is_the_same_before_amid_and_after_a_roll_up(api: ApiClient, ours: Customer) -> None:
    for i in range(12):
        settle(Usage(ours, after(i % 3), 10 + i, i))
    before = results(api, "&group_by=line_item", days=3)

    seen = []
    while roll_up(limit=5):
        seen.append(results(api, "&group_by=line_item", days=3))

    assert len(seen) > 2
    assert all(each == before for each in seen)


def test_the_costs_of_a_page_are_read_in_one_statement(
    ours: Customer, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settle(Usage(ours, FIRST, 1))
    roll_up()
    settle(Usage(ours, FIRST, 2))
    day = START // DAY
    query = report_query.CostQuery(
        ours.organization.pk, frozenset(), frozenset(), (), START, START + DAY, limit=7, filters=""
    )

    # Two would see two moments, and a roll-up between them would count costs twice or not at all.
    with django_assert_num_queries(1):
        assert cost_report.costs_by_day(query) == {day: [((None, None, None), 3)]}


def test_a_revoked_key_and_an_archived_project_stay_readable(api: ApiClient, ours: Customer) -> None:
    settle(Usage(ours, FIRST, 7, price=PRICE))
    services.revoke_key(key=ours.key, actor=SOMEONE)
    services.archive_project(project=ours.project, actor=SOMEONE)

    found = results(api, f"&project_ids={ours.project.pk}&api_key_ids={ours.key.pk}&group_by=project_id")

    assert amounts(found) == [["0.000000007"]]
