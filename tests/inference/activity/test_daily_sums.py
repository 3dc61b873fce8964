"""The sums of a day are the sums of its requests, whoever wrote them and however often they tried."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from gateway_site.database import row_writer
from inference.activity import writer
from inference.activity.writer import FIRST_TOKEN_MS, daily, gains_of
from inference.models import Activity, DailyActivity
from organization.models import Project, ProjectKey
from tests.factories import make_project_key
from tests.harness.isolation.connections import close_connections
from tests.harness.live_server import ROOT
from tests.inference.activity.factories import new_writer, trace
from tests.inference.customer import ApiCustomer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CELL = ("day", "organization_id", "project_id", "api_key_id", "model")


@pytest.fixture
def key(project: Project) -> ProjectKey:
    made: ProjectKey = make_project_key(project).key
    return made


def row(key: ProjectKey, ended_at: datetime = NOON, **fields: Any) -> Activity:
    return Activity(
        **{
            "id": uuid.uuid4(),
            "created_at": ended_at,
            "ended_at": ended_at,
            "organization_id": key.project.organization_id,
            "project_id": key.project_id,
            "api_key_id": key.pk,
            "endpoint": "/v1/chat/completions",
            "model": "llama",
            "status": 200,
            "total_ms": 10,
            **fields,
        }
    )


def kept() -> dict[Any, list[int]]:
    found = DailyActivity.objects.values_list(*CELL, *daily.sums)
    return {each[:5]: list(each[5:]) for each in found}


def assert_sums_are_of_rows() -> None:
    assert kept() == gains_of(Activity.objects.all())


def write(rows: Sequence[Activity]) -> None:
    writer.insert_activity(rows)


def test_it_works(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    for fields in ({}, {"stream": True}, {"n": 0}):
        customer.ask("echo", **fields)
    customer.ask("nothing")
    writer.writer.flush()

    sums = DailyActivity.objects.get(model="echo", api_key=customer.key)

    assert (sums.requests, sums.refused, sums.failed) == (2, 0, 0)
    assert (sums.prompt_tokens, sums.completion_tokens) == (8, 8)
    assert DailyActivity.objects.get(model="nothing").refused == 1
    assert DailyActivity.objects.get(model="").refused == 1  # refused before it was known
    assert_sums_are_of_rows()


@pytest.mark.django_db
def test_each_day_model_and_key_has_its_own(key: ProjectKey, project: Project) -> None:
    other = make_project_key(project).key
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    write(
        [
            row(key, midnight - timedelta(microseconds=1), status=503),
            row(key, midnight, status=429, prompt_tokens=5),
            row(key, midnight, status=499, prompt_tokens=7, completion_tokens=2),
            row(key, midnight, model="gpt"),
            row(other, midnight),
        ]
    )

    found = DailyActivity.objects.order_by("day", "model", "requests").values_list(
        "day", "model", "requests", "refused", "failed", "prompt_tokens", "completion_tokens"
    )
    second = date(2026, 3, 2)
    assert list(found) == [
        (date(2026, 3, 1), "llama", 1, 0, 1, 0, 0),
        (second, "gpt", 1, 0, 0, 0, 0),
        (second, "llama", 1, 0, 0, 0, 0),
        (second, "llama", 2, 2, 0, 12, 2),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("limit", FIRST_TOKEN_MS)
def test_a_first_token_is_counted_by_how_long_it_took(key: ProjectKey, limit: int) -> None:
    write([row(key, first_token_ms=limit), row(key, first_token_ms=limit + 1), row(key)])

    sums = DailyActivity.objects.get()
    columns = [*(f"first_token_{each}_ms" for each in FIRST_TOKEN_MS), "first_token_later"]
    counts = {name: getattr(sums, name) for name in columns if getattr(sums, name)}
    index = FIRST_TOKEN_MS.index(limit)
    assert counts == {columns[index]: 1, columns[index + 1]: 1}


@pytest.mark.django_db
def test_one_that_comes_twice_is_counted_once(key: ProjectKey) -> None:
    first, second = row(key), row(key)

    write([first, first])
    write([first, second])

    assert DailyActivity.objects.get().requests == 2
    assert_sums_are_of_rows()


def test_after_a_commit_that_nobody_heard_of_nothing_is_counted_again(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks between the commit and its answer: the writer cannot know, and tries again."""
    insert, breaks = writer.insert_activity, [True]

    def broken_once(rows: Sequence[Activity]) -> None:
        insert(rows)
        if breaks.pop() if breaks else False:
            raise OperationalError("the connection was lost")

    made = new_writer()
    monkeypatch.setattr(made, "insert", broken_once)
    monkeypatch.setattr(row_writer, "GATHER_SECONDS", 60)
    for _ in range(3):
        made.add(trace(customer.key))

    with pytest.raises(OperationalError):
        made.flush()
    made.add(trace(customer.key))
    made.flush()
    made.close(5)

    assert Activity.objects.count() == DailyActivity.objects.get().requests == 4
    assert_sums_are_of_rows()


@pytest.mark.django_db(transaction=True)
def test_rows_and_sums_come_together_or_not_at_all(key: ProjectKey, monkeypatch: pytest.MonkeyPatch) -> None:
    write([row(key)])

    def fail(gains: Any) -> None:
        raise OperationalError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(daily, "add", fail)
        with pytest.raises(OperationalError):
            write([row(key)])

    assert Activity.objects.count() == 1
    assert_sums_are_of_rows()


@pytest.mark.django_db(transaction=True)
def test_one_that_is_being_committed_elsewhere_is_waited_for(key: ProjectKey, database_vendor: str) -> None:
    """The first try's commit may still be on its way when the second begins."""
    if database_vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    same, is_written = row(key), threading.Event()

    def first_try() -> None:
        with transaction.atomic():
            write([same])
            is_written.set()
            until_somebody_waits()
        close_connections()

    slow = threading.Thread(target=first_try)
    slow.start()
    assert is_written.wait(10)
    write([same])
    slow.join(10)

    assert DailyActivity.objects.get().requests == 1


def until_somebody_waits() -> None:
    with connection.cursor() as cursor:
        for _ in range(500):
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
            threading.Event().wait(0.01)


WRITE_MANY = """
import sys, django; django.setup()
from inference.models import Activity
from inference.activity.writer import insert_activity
import uuid
from datetime import datetime, UTC
from organization.models import ProjectKey
keys = list(ProjectKey.objects.select_related("project").order_by("id"))
if sys.argv[1] == "down":
    keys.reverse()
sys.stdin.readline()
for batch in range(15):
    insert_activity([Activity(id=uuid.uuid4(), created_at=datetime(2026, 3, 1, tzinfo=UTC),
        ended_at=datetime(2026, 3, 1, tzinfo=UTC), organization_id=key.project.organization_id,
        project_id=key.project_id, api_key_id=key.pk, endpoint="/v1", model=f"m{number}", status=200,
        prompt_tokens=3, total_ms=1) for key in keys for number in range(3)])
"""


def test_two_processes_add_to_one_day_and_nothing_is_lost(
    process_environment: dict[str, str], project: Project, database_vendor: str
) -> None:
    """The same cells, named in opposite orders: neither loses what the other added, nor waits in a circle."""
    if database_vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    for _ in range(10):
        make_project_key(project)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE_MANY, order],
            cwd=ROOT,
            env=process_environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for order in ("up", "down")
    ]
    outputs: list[str] = []
    readers: list[Callable[[], None]] = [_hearing(each, outputs) for each in writers]
    for hear in readers:
        hear()

    assert [each.returncode for each in writers] == [0, 0], outputs
    assert DailyActivity.objects.count() == 30
    assert set(DailyActivity.objects.values_list("requests", "prompt_tokens")) == {(30, 90)}
    assert_sums_are_of_rows()


def _hearing(process: subprocess.Popen[str], outputs: list[str]) -> Callable[[], None]:
    """Let it begin; what is returned waits for its end."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return lambda: outputs.append(process.communicate(timeout=60)[1])
