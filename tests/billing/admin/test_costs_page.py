"""People look at an organization's costs, and take them away as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone

from billing.money import parse_usd, usd
from billing.prices.card import PriceCard
from billing.reports.cost_table import STEP_DAYS
from billing.reports.csv_export import text_cell
from billing.reports.rollup import roll_up
from organization.models import Organization
from tests.billing.factories import Customer, make_customer
from tests.billing.settled_requests import FIRST, Usage, after, hold, midnight, settle
from tests.factories import make_admin_key
from tests.gateway_site.console.clients import customer, owner, person
from tests.harness.client import ApiClient
from tests.harness.ledger_checks import assert_books_balance

PAGE, FILE = "/admin/costs/", "/admin/costs.csv"
# Long enough for an export of several steps.
DAYS = 2 * STEP_DAYS + 3
EVERYTHING = ("project_id", "api_key_id", "line_item")


@pytest.fixture(autouse=True)
def _books_balance(db: None) -> Iterator[None]:
    yield
    # A hold of the past is an orphan today; as of its own day it is not.
    assert_books_balance(datetime.combine(FIRST, time(12), UTC))


@pytest.fixture
def acme(db: None) -> Customer:
    """With two keys that spent something on every day of DAYS, some of it rolled up, and an open hold."""
    acme = make_customer(credit=10**12)
    other = acme.another_key()
    days = [after(number) for number in range(DAYS)]
    settle(*(Usage(acme, day, prompt=7, completion=3) for day in days[:9]))
    settle(*(Usage(other, day, prompt=11, model="llama") for day in days))
    roll_up(limit=5)
    settle(*(Usage(acme, day, prompt=7, completion=3) for day in days[9:]))
    # Far below a cent, and with all nine places.
    settle(Usage(acme, days[0], prompt=1, price=PriceCard.flat(prompt=1_000_123_000_000, completion=0)))
    hold(Usage(acme, days[-1], prompt=500))
    return acme


def asked(who: Customer, *groups: str, first: date = FIRST, last: date | None = None) -> str:
    return urlencode(
        {
            "organization": str(who.organization.pk),
            "first_day": first,
            "last_day": last or after(DAYS - 1),
            "group_by": groups,
        },
        doseq=True,
    )


async def _text(response: Any) -> str:
    return b"".join([part async for part in response.streaming_content]).decode()


def rows_of(response: Any) -> list[dict[str, str]]:
    assert response.status_code == 200
    return list(csv.DictReader(io.StringIO(async_to_sync(_text)(response))))


@pytest.mark.slow
def test_the_page_shows_what_each_project_cost(acme: Customer) -> None:
    page = owner().get(f"{PAGE}?{asked(acme, 'project_id')}")

    assert page.status_code == 200
    assert parse_usd(page.context["total"]) == acme.account.settled_nanousd
    assert "Web" in page.content.decode()
    assert f"/admin/costs.csv?{asked(acme, 'project_id')}".replace("&", "&amp;") in page.content.decode()


@pytest.mark.slow
@pytest.mark.parametrize("groups", [(), ("project_id",), ("api_key_id",), ("line_item",), EVERYTHING])
def test_page_file_report_and_account_say_the_same_sum(acme: Customer, groups: tuple[str, ...]) -> None:
    ada, query = owner(), asked(acme, *groups)
    api = ApiClient(make_admin_key(acme.organization).value)

    page, rows = ada.get(f"{PAGE}?{query}"), rows_of(ada.get(f"{FILE}?{query}"))
    report = api.get(
        f"/v1/organization/costs?start_time={midnight(FIRST)}&end_time={midnight(after(DAYS))}&limit=180"
        + "".join(f"&group_by={group}" for group in groups)
    ).json

    settled = acme.account.settled_nanousd
    reported = [result["amount"]["value"] for bucket in report["data"] for result in bucket["results"]]
    assert sum(parse_usd(row["amount_usd"]) for row in rows) == settled
    assert parse_usd(page.context["total"]) == settled
    assert sum(parse_usd(row["amount"]) for row in page.context["rows"]) == settled
    assert [row["amount_usd"] for row in rows] == reported


@pytest.mark.slow
def test_what_cannot_be_asked_is_said_in_the_pages_words(acme: Customer) -> None:
    answer = owner().get(PAGE, {"organization": str(acme.organization.pk), "first_day": "soon"})

    assert answer.status_code == 400
    assert "<li>First day: Enter a valid date.</li>" in answer.content.decode()


@pytest.mark.slow
def test_the_file_names_things_and_has_their_ids(acme: Customer) -> None:
    response = owner().get(f"{FILE}?{asked(acme, *EVERYTHING)}")

    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = rows_of(response)
    assert list(rows[0]) == [
        "day",
        "organization_id",
        "organization",
        "project_id",
        "project",
        "api_key_id",
        "api_key",
        "line_item",
        "amount_usd",
    ]
    assert rows[0]["day"] == FIRST.isoformat()
    assert rows[0]["organization_id"] == str(acme.organization.pk)
    assert (rows[0]["project_id"], rows[0]["project"]) == (str(acme.project.pk), "Web")
    assert {row["api_key"] for row in rows} >= {f"app ({acme.key.redacted_value})"}
    assert {row["line_item"] for row in rows} == {"gpt, prompt", "gpt, completion", "llama, prompt"}
    assert [row["day"] for row in rows] == sorted(row["day"] for row in rows)


def test_the_file_has_only_the_days_of_the_range(acme: Customer) -> None:
    rows = rows_of(owner().get(f"{FILE}?{asked(acme, first=after(1), last=after(2))}"))

    assert {row["day"] for row in rows} == {after(1).isoformat(), after(2).isoformat()}


def test_an_empty_month_is_a_header_alone(acme: Customer) -> None:
    ada, query = owner(), asked(acme, first=after(-30), last=after(-1))

    assert rows_of(ada.get(f"{FILE}?{query}")) == []
    assert "was charged nothing" in ada.get(f"{PAGE}?{query}").content.decode()


def test_this_month_is_shown_first(acme: Customer) -> None:
    page = owner().get(PAGE)

    today = timezone.now().date()
    assert page.context["cost_range"].first_day == today.replace(day=1)
    assert page.context["cost_range"].last_day == today
    assert page.context["cost_range"].group_by == ("project_id",)


HOSTILE = [
    '=HYPERLINK("http://evil.example","x")',
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "\ufeff=1",
    "\uff1d1+1",
    "\uff0b1",
    "\uff0d1",
    "\uff20x",
    "\ufe661",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_is_never_a_formula(text: str) -> None:
    assert text_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["Acme", "5 apples", "a=b", "", "'=1", "Ünïted"])
def test_an_honest_name_stays_as_it_is(text: str) -> None:
    assert text_cell(text) == text


def test_hostile_names_are_harmless_on_the_page_and_in_the_file(acme: Customer) -> None:
    formula, script = '=HYPERLINK("http://x","y")', "<script>alert(1)</script>"
    type(acme.project).objects.filter(pk=acme.project.pk).update(name=formula)
    Organization.objects.filter(pk=acme.organization.pk).update(name=f'{script}";\r\nSet-Cookie: a=b')
    type(acme.key).objects.filter(pk=acme.key.pk).update(name="@SUM(1)")
    ada, query = owner(), asked(acme, *EVERYTHING)

    page, response = ada.get(f"{PAGE}?{query}"), ada.get(f"{FILE}?{query}")

    assert script not in page.content.decode()
    name = response.headers["Content-Disposition"]
    assert name == (
        f'attachment; filename="costs-scriptalert1script-set-cookie-ab-{FIRST}-{after(DAYS - 1)}.csv"'
    )
    rows = rows_of(response)
    assert {row["project"] for row in rows} == {f"'{formula}"}
    assert any(row["api_key"].startswith("'@SUM(1)") for row in rows)
    assert all(row["amount_usd"][0].isdigit() for row in rows)


BAD = [
    ({"organization": "nobody"}, "no organization"),
    ({"organization": ""}, "Choose an organization"),
    ({"organization": "a\x00b"}, "NUL character"),
    ({"first_day": "yesterday"}, "valid date"),
    ({"first_day": "2026-03-02", "last_day": "2026-03-01"}, "must not be after"),
    ({"first_day": "2020-01-01", "last_day": "2026-03-01"}, "At most 366 days"),
    ({"first_day": "9999-12-31", "last_day": "9999-12-31"}, "Days are from"),
    ({"first_day": "0001-01-01", "last_day": "0001-01-01"}, "Days are from"),
    ({"group_by": "colour"}, "Select a valid choice"),
]


@pytest.mark.parametrize("path", [PAGE, FILE])
@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_what_makes_no_sense_is_explained(path: str, change: dict[str, str], message: str) -> None:
    acme = make_customer()
    given = {"organization": str(acme.organization.pk), "first_day": FIRST, "last_day": FIRST, **change}

    answer = owner().get(f"{path}?{urlencode(given)}")

    assert answer.status_code == 400
    assert message in answer.content.decode()


def test_without_an_organization_the_page_says_what_to_do(db: None) -> None:
    ada = owner()

    assert "Create an organization" in ada.get(PAGE).content.decode()
    assert ada.get(FILE).status_code == 400


def test_strangers_see_no_costs() -> None:
    query = asked(make_customer())
    for path in (PAGE, FILE):
        assert Client().get(f"{path}?{query}").status_code == 302
    not_staff, stranger = customer(), person("billing.view_account", "organization.view_organization")
    for path in (PAGE, FILE):
        assert not_staff.get(f"{path}?{query}").status_code == 302
        assert stranger.get(f"{path}?{query}").status_code == 403


def test_one_permission_is_enough(acme: Customer) -> None:
    biller = person("billing.view_costline")

    assert biller.get(f"{PAGE}?{asked(acme)}").status_code == 200
    assert rows_of(biller.get(f"{FILE}?{asked(acme)}"))


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_costs_are_only_read(method: str) -> None:
    assert getattr(owner(), method)(PAGE).status_code == 405


def test_another_organizations_costs_are_not_among_them(acme: Customer) -> None:
    rival = make_customer(credit=10**9)
    settle(Usage(rival, FIRST, prompt=999))

    rows = rows_of(owner().get(f"{FILE}?{asked(rival, 'api_key_id')}"))

    assert [(row["api_key_id"], row["amount_usd"]) for row in rows] == [(str(rival.key.pk), usd(999))]


def test_the_page_asks_as_much_for_many_keys_as_for_few(
    acme: Customer, django_assert_max_num_queries: Any
) -> None:
    settle(*(Usage(acme.another_key(), FIRST + timedelta(days=n), prompt=1) for n in range(15)))
    ada = owner()

    with django_assert_max_num_queries(7):
        assert ada.get(f"{PAGE}?{asked(acme, *EVERYTHING)}").status_code == 200
