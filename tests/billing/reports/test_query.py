"""What may be asked of the cost report, by whom, and how it continues."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import Any

import pytest
from django.core.signing import Signer
from django.test import override_settings

from billing.reports import cursor as report_cursor
from billing.reports.cursor import ReportCursor
from organization.models import Project
from tests.billing.factories import Customer, make_customer, make_key
from tests.billing.settled_requests import DAY, FIRST, Usage, after, midnight, settle
from tests.factories import make_admin_key
from tests.harness.client import Answer, ApiClient
from tests.harness.error_checks import assert_error

URL = "/v1/organization/costs"
START = midnight(FIRST)
END = START + 10 * DAY
pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def ours(db: None) -> Customer:
    return make_customer(credit=10**12)


@pytest.fixture
def api(ours: Customer) -> ApiClient:
    return ApiClient(make_admin_key(ours.organization).value)


@pytest.fixture
def theirs(db: None) -> Customer:
    return make_customer(credit=10**12)


@pytest.fixture
def their_api(theirs: Customer) -> ApiClient:
    return ApiClient(make_admin_key(theirs.organization).value)


def ask(api: ApiClient, query: str = "") -> Answer:
    return api.get(f"{URL}?start_time={START}&end_time={END}{query}")


def walk(api: ApiClient, query: str, limit: int) -> list[Any]:
    """Every bucket, page by page."""
    buckets, cursor = [], ""
    while True:
        page = api.get(f"{URL}?{query}&limit={limit}{cursor}").json
        buckets += page["data"]
        assert page["has_more"] is (page["next_page"] is not None)
        if not page["has_more"]:
            return buckets
        assert len(page["data"]) == limit
        cursor = f"&page={page['next_page']}"


# --- parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("", "start_time"),
        ("start_time=", "start_time"),
        ("start_time=-1", "start_time"),
        ("start_time=1.5", "start_time"),
        ("start_time=1e9", "start_time"),
        ("start_time=+5", "start_time"),
        ("start_time=0x10", "start_time"),
        ("start_time=%D9%A1", "start_time"),
        ("start_time=2026-01-01", "start_time"),
        ("start_time=253402214401", "start_time"),
        ("start_time=99999999999999999999999999", "start_time"),
        ("start_time=1&start_time=2", "start_time"),
        ("start_time[]=1", "start_time[]"),
        ("start_time=253402214400", "start_time"),  # after now
        ("start_time=5&end_time=5", "end_time"),
        ("start_time=6&end_time=5", "end_time"),
        ("start_time=5&end_time=", "end_time"),
        ("start_time=5&end_time=-1", "end_time"),
        ("start_time=5&end_time=now", "end_time"),
        ("start_time=5&end_time=9223372036854775808", "end_time"),
        ("start_time=5&end_time=7&end_time=8", "end_time"),
        ("start_time=5&bucket_width=1h", "bucket_width"),
        ("start_time=5&bucket_width=", "bucket_width"),
        ("start_time=5&limit=0", "limit"),
        ("start_time=5&limit=181", "limit"),
        ("start_time=5&limit=1e2", "limit"),
        ("start_time=5&limit=-7", "limit"),
        ("start_time=5&limit=", "limit"),
        ("start_time=5&limit=7&limit=7", "limit"),
        ("start_time=5&group_by=user_id", "group_by"),
        ("start_time=5&group_by=", "group_by"),
        ("start_time=5&group_by=project_id,", "group_by"),
        ("start_time=5&group_by=PROJECT_ID", "group_by"),
        ("start_time=5&group_by=project_id,api_key_id,line_item,line_item", "group_by"),
        ("start_time=5&project_ids=", "project_ids"),
        ("start_time=5&project_ids[]=", "project_ids"),
        ("start_time=5&project_ids=,", "project_ids"),
        ("start_time=5&api_key_ids=" + ",".join(["x"] * 101), "api_key_ids"),
        ("start_time=5&" + "&".join(["project_ids=x"] * 51 + ["project_ids[]=x"] * 50), "project_ids"),
        ("start_time=5&page=", "page"),
        ("start_time=5&page=" + "x" * 501, "page"),
        ("start_time=5&page=a&page=b", "page"),
        ("start_time=5&line_items=x", "line_items"),
        ("start_time=5&project_ids[0]=x", "project_ids[0]"),
        ("start_time=5&project_ids[][]=x", "project_ids[][]"),
        ("start_time=5&limit[]=7", "limit[]"),
        ("start_time=5&user_ids=x", "user_ids"),
    ],
)
def test_a_bad_query_is_refused(api: ApiClient, query: str, param: str) -> None:
    assert_error(api.get(f"{URL}?{query}"), 400, "invalid_request", param=param)


def test_a_thousand_parameters_are_refused(api: ApiClient) -> None:
    assert_error(ask(api, "&project_ids=x" * 1001), 400, "invalid_request")


def test_the_extremes_of_time_are_no_trouble(api: ApiClient) -> None:
    first = api.get(f"{URL}?start_time=0&end_time=1").json["data"]
    last = api.get(f"{URL}?start_time=253402214399&end_time=253402214400").json["data"]
    page = api.get(f"{URL}?start_time=0&end_time=253402214400&limit=180").json

    assert (first[0]["start_time"], first[0]["end_time"]) == (0, 1)
    assert (last[0]["start_time"], last[0]["end_time"]) == (253402214399, 253402214400)
    assert page["has_more"]
    assert len(page["data"]) == 180


def test_seven_days_unless_told_otherwise(api: ApiClient) -> None:
    assert len(ask(api).json["data"]) == 7
    assert len(ask(api, "&limit=180").json["data"]) == 10


@pytest.mark.parametrize(
    "form",
    [
        "api_key_ids={a}&api_key_ids={b}",
        "api_key_ids={a},{b}",
        "api_key_ids[]={a}&api_key_ids[]={b}",
        "api_key_ids%5B%5D={a}&api_key_ids%5B%5D={b}",
        "api_key_ids[]={a},{b}",
        "api_key_ids={a}&api_key_ids[]={b}",
        "api_key_ids={a},{b}&api_key_ids[]={a}&api_key_ids={A}",
    ],
)
def test_a_list_may_be_written_in_several_ways(api: ApiClient, ours: Customer, form: str) -> None:
    second, third = ours.another_key(), ours.another_key()
    settle(Usage(ours, FIRST, 1), Usage(second, FIRST, 2), Usage(third, FIRST, 4))
    ids = {"a": ours.key.pk, "A": str(ours.key.pk).upper(), "b": second.key.pk}

    page = ask(api, "&" + form.format(**ids)).json

    assert page["data"][0]["results"][0]["amount"]["value"] == "0.000000003"


def test_a_hundred_ids_are_accepted(api: ApiClient, ours: Customer) -> None:
    ids = [str(make_key(ours.project).pk) for _ in range(100)]

    assert ask(api, f"&api_key_ids={','.join(ids)}&group_by=api_key_id").status == 200


# --- strangers ---------------------------------------------------------------------------------------


def test_nothing_of_a_stranger_is_in_the_report(
    api: ApiClient, ours: Customer, their_api: ApiClient, theirs: Customer
) -> None:
    settle(Usage(theirs, FIRST, 1_000))

    assert all(bucket["results"] == [] for bucket in ask(api).json["data"])
    assert ask(their_api).json["data"][0]["results"]


@pytest.mark.parametrize("name", ["project_ids", "api_key_ids"])
def test_a_strangers_id_is_like_one_that_nobody_has(
    api: ApiClient, ours: Customer, theirs: Customer, name: str
) -> None:
    their_id = theirs.project.pk if name == "project_ids" else theirs.key.pk
    own_id = ours.project.pk if name == "project_ids" else ours.key.pk
    # A key is no project, and the other way round.
    swapped = ours.key.pk if name == "project_ids" else ours.project.pk

    answers = [
        ask(api, f"&{name}={each}")
        for each in (their_id, uuid.uuid4(), swapped, f"{own_id},{their_id}", "x", "%00", f"%7B{own_id}%7D")
    ]

    for answer in answers:
        assert_error(answer, 404, "not_found", param=name)
        assert answer.error["message"] == answers[0].error["message"]
    assert ask(api, f"&{name}={own_id}").status == 200


# --- pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 5, 9, 10, 180])
def test_pages_add_up_to_the_whole(api: ApiClient, ours: Customer, limit: int) -> None:
    settle(*(Usage(ours, after(day), 1 + day, day) for day in (0, 1, 4, 9)))
    query = f"start_time={START + 5}&end_time={END - 5}&group_by=line_item"
    whole = api.get(f"{URL}?{query}&limit=180").json["data"]

    assert walk(api, query, limit) == whole
    assert len(whole) == 10


def test_the_page_size_may_change_on_the_way(api: ApiClient) -> None:
    first = ask(api, "&limit=2").json
    second = ask(api, f"&limit=5&page={first['next_page']}").json

    assert [bucket["start_time"] for bucket in second["data"]] == [START + day * DAY for day in range(2, 7)]


def test_a_cursor_keeps_the_end_of_a_report_that_ended_now(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    start = int(now) - 2 * DAY
    first = api.get(f"{URL}?start_time={start}&limit=1").json
    monkeypatch.setattr("billing.reports.query.time.time", lambda: now + 5 * DAY)

    rest = api.get(f"{URL}?start_time={start}&limit=180&page={first['next_page']}").json

    assert len(rest["data"]) == 2
    assert rest["next_page"] is None


def test_order_and_spelling_of_filters_do_not_matter_to_a_cursor(api: ApiClient, ours: Customer) -> None:
    other = ours.another_key()
    cursor = ask(
        api, f"&limit=1&api_key_ids={ours.key.pk},{other.key.pk}&group_by=line_item,project_id"
    ).json["next_page"]

    again = (
        f"&api_key_ids[]={other.key.pk}&api_key_ids[]={ours.key.pk}&group_by=project_id&group_by=line_item"
    )

    assert ask(api, f"{again}&page={cursor}").status == 200
    assert len(cursor) <= 500


@pytest.mark.parametrize(
    "change",
    [
        "start_time={start}&end_time={end}&group_by=project_id",
        "start_time={start}&end_time={end}&project_ids={project}",
        "start_time={start}&end_time={end}&api_key_ids={key}",
        "start_time={other}&end_time={end}",
        "start_time={start}&end_time={other_end}",
        "start_time={start}",
    ],
)
def test_a_cursor_does_not_fit_other_filters(api: ApiClient, ours: Customer, change: str) -> None:
    cursor = ask(api, "&limit=1").json["next_page"]
    query = change.format(
        start=START, end=END, other=START + 1, other_end=END - 1, project=ours.project.pk, key=ours.key.pk
    )

    assert_error(api.get(f"{URL}?{query}&page={cursor}"), 400, "invalid_request", param="page")


def test_a_cursor_does_not_fit_another_organization(api: ApiClient, their_api: ApiClient) -> None:
    cursor = ask(api, "&limit=1").json["next_page"]

    theirs, made_up = ask(their_api, f"&page={cursor}"), ask(their_api, "&page=x")

    assert_error(theirs, 400, "invalid_request", param="page")
    assert theirs.error["message"] == made_up.error["message"]
    assert ask(api, f"&page={cursor}").status == 200


@pytest.mark.slow
def test_a_cursor_cannot_be_changed_in_any_place(api: ApiClient) -> None:
    cursor = ask(api, "&limit=1").json["next_page"]

    for i, letter in enumerate(cursor):
        changed = f"{cursor[:i]}{'A' if letter != 'A' else 'B'}{cursor[i + 1 :]}"
        assert_error(ask(api, f"&page={changed}"), 400, "invalid_request", param="page")
    for cut in (
        cursor[:-1],
        cursor[1:],
        f"{cursor}A",
        f"{cursor}=",
        cursor.rpartition(".")[0],
        cursor.upper(),
    ):
        assert_error(ask(api, f"&page={cut}"), 400, "invalid_request", param="page")


def test_a_cursor_cannot_be_made_without_the_secret(api: ApiClient, ours: Customer) -> None:
    cursor = ask(api, "&limit=1").json["next_page"]
    content = json.loads(base64.urlsafe_b64decode(cursor.partition(".")[0] + "=="))
    assert content[0] == report_cursor.VERSION
    assert content[1] == ours.organization.pk.hex
    forged = [
        Signer(salt="billing.report_cursor", sep=".", key="x" * 50).sign_object(content),
        Signer(salt="another", sep=".").sign_object(content),
        Signer(salt="billing.report_cursor", sep=".").sign_object(
            [report_cursor.VERSION + 1, *content[1:], "more"]
        ),
        "x",
        ".",
        "%00",
        "%F0%9F%99%82.%F0%9F%99%82",
        "%C3%28",
    ]

    for each in forged:
        assert_error(ask(api, f"&page={each}"), 400, "invalid_request", param="page")


def test_a_cursor_outlives_a_change_of_the_secret_that_keeps_the_old_one(
    api: ApiClient, ours: Customer, settings: Any
) -> None:
    cursor = ask(api, "&limit=1").json["next_page"]
    old = settings.SECRET_KEY

    with override_settings(SECRET_KEY="n" * 64, SECRET_KEY_FALLBACKS=[old]):
        assert ask(api, f"&page={cursor}").status == 200
    with override_settings(SECRET_KEY="n" * 64):
        assert_error(ask(api, f"&page={cursor}"), 400, param="page")


def test_the_longest_cursor_fits() -> None:
    written = report_cursor.write(
        ReportCursor(2_932_895, 253_402_214_400), organization_id=uuid.uuid4(), filters="f" * 64
    )

    assert len(written) <= report_cursor.MAX_LENGTH


def test_a_project_of_another_name_is_nothing_special(api: ApiClient, ours: Customer) -> None:
    empty = Project.objects.create(organization=ours.organization, name="Empty")

    assert all(bucket["results"] == [] for bucket in ask(api, f"&project_ids={empty.pk}").json["data"])
