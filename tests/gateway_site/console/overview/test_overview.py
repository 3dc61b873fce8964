"""An operator opens the console and sees what matters, from sums that do not grow with requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from billing.ledger.operations import MarkUnknown
from billing.models import LedgerAudit
from billing.money import usd
from billing.reports.rollup import roll_up
from gateway_site.console.overview import chart as overview_chart
from gateway_site.console.overview.traffic import quantile_ms
from organization.models import Organization, ProjectKey
from policies import services as policies
from tests.billing.factories import SOMEONE, Customer, make_customer
from tests.billing.settled_requests import Usage, apply, hold, settle
from tests.gateway_site.console.activity_rows import failure, requests, verdicts
from tests.gateway_site.console.clients import customer, owner, person
from tests.harness.ledger_checks import assert_books_balance

OVERVIEW = "/admin/"
# With room for one more account than were measured.
MOST_QUERIES = 17
SECRETS = ["Web", "backend_failed", "Rude", "$0.00"]
BIG_TABLES = ['FROM "inference_activity"', 'FROM "billing_costline"', 'FROM "billing_reservation"']


@pytest.fixture(autouse=True)
def _books_balance(db: None) -> Iterator[None]:
    yield
    # As of yesterday, when the open holds of these tests were not orphans yet.
    assert_books_balance(timezone.now() - timedelta(days=1))


@pytest.fixture
def acme(db: None) -> Customer:
    """Spent 500 nano-USD a day in the last ten days and has 5000 left, of which 100 are held."""
    acme = make_customer(credit=10_000)
    today = timezone.now().date()
    settle(*(Usage(acme, today - timedelta(days=ago), prompt=500) for ago in range(10)), clock=time(0))
    roll_up(limit=4)
    hold(Usage(acme, today, prompt=100), clock=time(0))
    requests(acme, requests=90, refused=9, failed=1, first_token_100_ms=50, first_token_250_ms=40)
    requests(acme, days_ago=29, requests=10, first_token_later=1)
    requests(acme, days_ago=30, requests=7_777)
    return acme


def published(who: Customer) -> Any:
    policy = policies.create_policy(
        organization=who.organization, name="Rude", rule="Is it rude?", actor=SOMEONE
    )
    return policies.publish_policy(policy=policy, mode="monitoring", actor=SOMEONE)


def seen(client: Client, query: str = "") -> Any:
    page = client.get(f"{OVERVIEW}?{query}" if query else OVERVIEW)
    assert page.status_code == 200
    return page


def cards(page: Any) -> dict[str, tuple[str, str]]:
    return {card["title"]: (card["value"], card["note"]) for card in page.context["cards"]}


def test_the_figures_of_thirty_days(acme: Customer) -> None:
    page = seen(owner())

    assert cards(page) == {
        "Credit left": (f"${usd(4_900)}", f"${usd(100)} more is held for open requests"),
        "Spent in 30 days": (f"${usd(5_000)}", f"${usd(500)} today"),
        "Requests in 30 days": ("100", "90 today"),
        "Error rate": ("1.0 %", "5xx; 9.0 % were refused (4xx)"),
        "Time to first token": ("91 ms", "estimated median; 95 % within about 237 ms"),
    }


def test_spending_is_drawn_by_day_and_written_down(acme: Customer) -> None:
    chart = seen(owner()).context["chart"]

    drawn = json.loads(chart["data"])
    assert len(drawn["labels"]) == 30
    assert [dataset["label"] for dataset in drawn["datasets"]] == [f"{acme.organization} / Web"]
    assert [row["sum"] for row in chart["rows"]] == ["0"] * 20 + [usd(500)] * 10


def test_many_projects_are_drawn_as_few(acme: Customer) -> None:
    today = timezone.now().date()
    for amount in range(1, 11):
        small = make_customer(credit=100)
        settle(Usage(small, today, prompt=amount), clock=time(0))

    chart = seen(owner()).context["chart"]

    assert len(chart["headers"]) == overview_chart.SHOWN_PROJECTS + 1
    assert chart["headers"][-1] == "Other projects"
    # 1, 2 and 3 are among the others.
    assert chart["rows"][-1]["amounts"][-1] == usd(6)
    assert chart["rows"][-1]["sum"] == usd(500 + 55)


def test_top_keys_failures_and_policies_lead_to_their_pages(acme: Customer) -> None:
    policy, failed = published(acme), failure(acme)
    verdicts(policy, 6, matches=2)
    verdicts(policy, 29, matches=3)
    verdicts(policy, 30, matches=99)

    page = seen(owner())

    html = page.content.decode()
    assert page.context["keys"][0]["exact"] == f"{usd(5_000)} USD"
    assert [(row["week"], row["month"]) for row in page.context["policies"]] == [("2", "5")]
    for name, pk in (
        ("organization_projectkey", acme.key.pk),
        ("policies_policy", policy.pk),
        ("inference_activity", failed.pk),
    ):
        assert reverse(f"admin:{name}_change", args=[pk]) in html


def test_the_latest_failures_are_the_newest_eight(acme: Customer) -> None:
    for minutes in range(12):
        failure(acme, status=429 if minutes % 2 else 500, minutes_ago=minutes, code=f"number_{minutes}")
    failure(acme, status=200, minutes_ago=0, code="fine")

    codes = [row["code"] for row in seen(owner()).context["failures"]]

    assert codes == [f"number_{minutes}" for minutes in range(8)]


def test_unsettled_usage_is_counted(acme: Customer) -> None:
    now = timezone.now()
    [lost] = hold(Usage(acme, now.date(), prompt=50), clock=time(0))
    apply(now.date(), time(0), [MarkUnknown(lost.id, lost.organization_id)])

    unsettled = seen(owner()).context["unsettled"]

    assert (unsettled["held"], unsettled["unknown"]) == (1, 1)
    assert unsettled["held_usd"] == f"${usd(150)}"
    assert unsettled["oldest_unknown"]


def test_one_organization_can_be_looked_at_alone(acme: Customer) -> None:
    rival = make_customer(credit=70_000)
    settle(Usage(rival, timezone.now().date(), prompt=40_000), clock=time(0))
    requests(rival, requests=5)
    failure(rival, code="theirs")
    verdicts(published(rival), 0, matches=1)
    ada = owner()

    mine = seen(ada, f"organization={acme.organization.pk}")
    theirs = seen(ada, f"organization={rival.organization.pk}")

    assert cards(mine)["Spent in 30 days"][0] == f"${usd(5_000)}"
    assert cards(mine)["Requests in 30 days"] == ("100", "90 today")
    assert mine.context["failures"] == mine.context["policies"] == []
    assert [row["exact"] for row in mine.context["keys"]] == [f"{usd(5_000)} USD"]
    assert cards(theirs)["Credit left"][0] == f"${usd(30_000)}"
    assert cards(theirs)["Requests in 30 days"] == ("5", "5 today")
    assert [row["code"] for row in theirs.context["failures"]] == ["theirs"]


@pytest.mark.parametrize("text", ["nobody", "00000000-0000-4000-8000-000000000001", "'; DROP TABLE x"])
def test_an_organization_that_nobody_has_is_said_to_be_none(acme: Customer, text: str) -> None:
    page = owner().get(OVERVIEW, {"organization": text})

    assert page.status_code == 200
    assert "There is no such organization" in page.content.decode()


# --- banners -----------------------------------------------------------------------------------------


def test_credit_that_lasts_long_enough_is_not_warned_about(acme: Customer) -> None:
    assert not seen(owner()).context["low_credit"]["named"]


def test_an_organization_that_runs_short_is_named_with_the_way_out(acme: Customer) -> None:
    # 500 a day, and 1400 left.
    acme.grant(-3_500)

    page = seen(owner())

    [named] = page.context["low_credit"]["named"]
    assert (named["name"], named["days_left"]) == (acme.organization.name, "2.8")
    grant = f"{reverse('admin:billing_creditgrant_add')}?organization={acme.organization.pk}"
    assert f'href="{grant}"' in page.content.decode()
    assert "Grant credit" not in seen(person("billing.view_account")).content.decode()


def test_a_tiny_amount_runs_short_like_a_large_one(acme: Customer) -> None:
    today = timezone.now().date()
    # Three days of a seventh of it is more than the $0.00021 that is left; then just as much, which lasts.
    short, lasts = make_customer(credit=210_000 + 490_001), make_customer(credit=210_000 + 490_000)
    settle(Usage(short, today, prompt=490_001), Usage(lasts, today, prompt=490_000), clock=time(0))

    [named] = seen(owner()).context["low_credit"]["named"]

    assert named["name"] == short.organization.name
    assert (named["available"], named["days_left"]) == ("$0.00021", "3.0")


@pytest.mark.slow
def test_a_card_leads_to_what_it_has_counted(acme: Customer) -> None:
    ada = owner()

    def links(**query: str) -> dict[str, str]:
        return {card["title"]: card["url"] for card in ada.get(OVERVIEW, query).context["cards"]}

    requests = reverse("admin:inference_activity_changelist")
    assert links()["Error rate"] == f"{requests}?status=failed&when=30d"
    assert links()["Requests in 30 days"] == f"{requests}?when=30d"
    alone = links(organization=str(acme.organization.pk))
    assert alone["Credit left"] == reverse("admin:billing_account_change", args=[acme.organization.pk])
    assert alone["Error rate"].endswith(f"&organization__id__exact={acme.organization.pk}")
    for link in (links() | alone).values():
        assert ada.get(link).status_code == 200
    bare = make_customer().organization
    assert ada.get(links(organization=str(bare.pk))["Credit left"]).status_code == 200


def test_an_empty_account_matters_while_a_key_works(acme: Customer) -> None:
    poor = make_customer()
    ada = owner()
    assert [each["name"] for each in seen(ada).context["low_credit"]["named"]] == [poor.organization.name]

    ProjectKey.objects.filter(pk=poor.key.pk).update(revoked_at=timezone.now())

    assert not seen(ada).context["low_credit"]["named"]


def test_many_that_run_short_are_counted(acme: Customer) -> None:
    for _ in range(7):
        make_customer()

    low = seen(owner()).context["low_credit"]

    assert (len(low["named"]), low["more"]) == (5, 2)


def test_broken_books_are_the_first_thing_on_the_page(acme: Customer) -> None:
    finding = {
        "name": "never_overdrawn",
        "meaning": "No account <b>overdraws</b>.",
        "count": 2,
        "examples": [],
    }
    LedgerAudit.objects.create(seconds=1, broken=1, findings=[finding])

    html = seen(owner()).content.decode()

    assert "books do not balance" in html
    assert "never_overdrawn" in html
    assert "No account &lt;b&gt;overdraws" in html
    assert "books do not balance" not in seen(person("billing.view_account")).content.decode()


def test_sound_books_say_nothing(acme: Customer) -> None:
    LedgerAudit.objects.create(seconds=1, broken=1, findings=[])
    LedgerAudit.objects.create(seconds=1, broken=0)

    ledger = seen(owner()).context["ledger"]

    assert not ledger["broken"]
    assert not ledger["is_late"]


def test_books_that_nobody_checks_are_warned_about(acme: Customer) -> None:
    ada = owner()
    assert "audited" not in seen(ada).content.decode()
    LedgerAudit.objects.create(seconds=1, broken=0, finished_at=timezone.now() - timedelta(days=3))

    assert "last audited 3 d ago" in seen(ada).content.decode()


# --- who sees what -----------------------------------------------------------------------------------

BLOCKS = {
    "billing.view_account": {"Credit left"},
    "billing.view_costline": {"Spent in 30 days", "chart"},
    "inference.view_activity": {"Requests in 30 days", "Error rate", "Time to first token", "failures"},
    "policies.view_policy": {"policies"},
    "billing.view_reservation": {"unsettled"},
    "organization.view_projectkey": set(),
}


@pytest.mark.parametrize("permission", BLOCKS)
def test_each_permission_opens_its_own_blocks(acme: Customer, permission: str) -> None:
    failure(acme)
    verdicts(published(acme), 0, matches=1)

    page = seen(person(permission))

    blocks = {"chart", "keys", "failures", "policies", "unsettled"}
    shown = set(cards(page)) | {name for name in blocks if page.context[name] is not None}
    assert shown == BLOCKS[permission]


def test_a_person_without_a_role_sees_nothing_of_it(acme: Customer) -> None:
    failure(acme)

    html = seen(person(), f"organization={acme.organization.pk}").content.decode()

    assert "Ask an owner" in html
    assert "There is no such organization" not in html
    assert acme.organization.name not in html
    assert not [secret for secret in SECRETS if secret in html]


def test_strangers_are_sent_to_sign_in(acme: Customer) -> None:
    assert Client().get(OVERVIEW).status_code == 302
    assert customer().get(OVERVIEW).status_code == 302


def test_hostile_names_are_only_names(acme: Customer) -> None:
    script = "<script>alert(1)</script>"
    Organization.objects.filter(pk=acme.organization.pk).update(name=script)
    type(acme.project).objects.update(name=script)
    type(acme.key).objects.update(name=script)
    failure(acme, model=script, code=script)

    assert script not in seen(owner()).content.decode()


# --- what it costs -----------------------------------------------------------------------------------


def test_it_asks_as_much_for_many_rows_as_for_few(acme: Customer, django_assert_max_num_queries: Any) -> None:
    today = timezone.now().date()
    for number in range(12):
        other = make_customer(credit=1_000 if number % 2 else 0)
        if number % 2:
            settle(Usage(other, today, prompt=10), clock=time(0))
        requests(other, requests=3)
        failure(other)
        verdicts(published(other), 0, matches=1)
    ada = owner()

    with django_assert_max_num_queries(MOST_QUERIES):
        seen(ada)


def test_no_table_that_grows_with_requests_is_read_through(acme: Customer) -> None:
    ada = owner()
    with CaptureQueriesContext(connection) as asked:
        seen(ada)

    read = [query["sql"] for query in asked if any(table in query["sql"] for table in BIG_TABLES)]
    # The newest failures, and the open reservations: each has a partial index.
    assert len(read) == 2
    assert any('"status" >= 400' in sql and "LIMIT 8" in sql for sql in read)
    assert any("IN ('held', 'unknown')" in sql for sql in read)


@pytest.mark.parametrize(
    ("counts", "share", "milliseconds"),
    [
        ((0, 0, 0, 0, 0, 0, 0), 0.5, None),
        ((10, 0, 0, 0, 0, 0, 0), 0.5, 50),
        ((1, 0, 0, 1, 0, 0, 0), 0.5, 100),
        ((0, 0, 4, 0, 0, 0, 0), 0.75, 437.5),
        ((0, 0, 0, 0, 0, 0, 3), 0.5, float("inf")),
        ((90, 0, 0, 0, 0, 0, 10), 0.95, float("inf")),
    ],
)
def test_a_time_is_estimated_from_what_was_counted(
    counts: tuple[int, ...], share: float, milliseconds: float | None
) -> None:
    assert quantile_ms(counts, share) == milliseconds


def test_a_late_clock_is_the_same_day_everywhere(acme: Customer) -> None:
    """Days are UTC days, from the clock to the label of the last bar."""
    labels = json.loads(seen(owner()).context["chart"]["data"])["labels"]

    today = datetime.now(UTC).date()
    assert labels[-1] == f"{today:%b} {today.day}"
