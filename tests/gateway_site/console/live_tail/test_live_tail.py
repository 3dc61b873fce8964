"""Staff watch requests as they end, and nobody else does."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from gateway_site.console.live_tail import consumer
from gateway_site.console.live_tail import poller as live_tail_poller
from gateway_site.console.live_tail.consumer import Backlog, TailConsumer, poller, watching
from organization.models import Project, ProjectKey
from tests.factories import make_project_key
from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.live_tail.socket_client import Socket, off_loop, play, scope_of, until
from tests.inference.activity.factories import make_request

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(live_tail_poller, "INTERVAL_SECONDS", 0.02)
    yield
    assert not watching
    assert not poller.is_running


@pytest.fixture
def key(project: Project) -> ProjectKey:
    made: ProjectKey = make_project_key(project).key
    return made


def test_a_request_appears_in_the_live_tail_when_it_ends(key: ProjectKey) -> None:
    ada = owner()
    before = make_request(key, ago=timedelta(minutes=3))

    async def scenario() -> None:
        socket = Socket(ada)
        assert await socket.open()
        await socket.message_with(before.pk)
        fresh = await off_loop(
            make_request, key, model=HOSTILE, status=402, code="insufficient_credit", cost_nanousd=12_345
        )
        row = await socket.message_with(fresh.pk)
        assert (row["organization"], row["project"], row["key"]) == ("Acme", "Web", "app")
        assert (row["model"], row["status"], row["code"]) == (HOSTILE, 402, "insufficient_credit")
        assert (row["cost"], row["total_ms"]) == ("$0.000012345", 2_000)
        assert row["key_value"] == key.redacted_value
        assert poller.is_running
        await socket.leave()
        # Nobody watches, so nothing is read.
        assert not poller.is_running

    play(scenario)


def test_what_another_process_wrote_late_is_told_once(key: ProjectKey) -> None:
    ada = owner()

    async def scenario() -> None:
        socket = Socket(ada)
        await socket.open()
        assert (await socket.message())["rows"] == []
        newer = await off_loop(make_request, key, ago=timedelta(seconds=1))
        await socket.message_with(newer.pk)
        older = await off_loop(make_request, key, ago=timedelta(seconds=30))
        assert [row["id"] for row in (await socket.message())["rows"]] == [str(older.pk)]
        await socket.leave()

    play(scenario)


def test_a_database_that_is_away_is_said_and_asked_again(
    key: ProjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = owner()
    read = live_tail_poller.read_newest

    async def fail() -> None:
        raise OperationalError

    async def scenario() -> None:
        socket = Socket(ada)
        await socket.open()
        monkeypatch.setattr(live_tail_poller, "read_newest", fail)
        while not (await socket.message())["notes"]["has_trouble"]:
            pass
        monkeypatch.setattr(live_tail_poller, "read_newest", read)
        fresh = await off_loop(make_request, key)
        await socket.message_with(fresh.pk)
        await socket.leave()

    play(scenario)


def test_a_browser_that_does_not_keep_up_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "MOST_WAITING", 3)
    ada = owner()
    waits, reads = asyncio.Event(), asyncio.Event()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            waits.set()
            await reads.wait()
        sent.append(message)

    async def scenario() -> None:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        await inbox.put({"type": "websocket.connect"})
        slow = TailConsumer()
        running = asyncio.create_task(slow(scope_of(ada, origin="http://testserver"), inbox.get, send))
        await waits.wait()
        quick = Socket(ada)
        await quick.open()
        await quick.message()
        for number in range(10):
            await slow.channel_layer.group_send(consumer.GROUP, news(number))
            assert (await quick.message())["rows"] == [number]
        await until(lambda: "9" in slow._backlog._rows)
        reads.set()
        await until(lambda: sum(len(each["rows"]) for each in told()) >= 3)
        assert [row for each in told() for row in each["rows"]] == [7, 8, 9]
        assert sum(each["notes"]["skipped"] for each in told()) == 7
        await inbox.put({"type": "websocket.disconnect", "code": 1001})
        await running
        await quick.leave()

    def told() -> list[dict[str, Any]]:
        return [json.loads(each["text"]) for each in sent if each["type"] == "websocket.send"]

    play(scenario)


def news(number: int) -> dict[str, Any]:
    return {"type": "tail.news", "rows": [str(number)], "has_gap": False, "has_trouble": False}


def test_a_backlog_keeps_the_newest() -> None:
    async def scenario() -> None:
        backlog = Backlog()
        backlog.add([str(number) for number in reversed(range(250))], has_gap=True)
        told = json.loads(await backlog.take())
        assert told["rows"] == list(range(50, 250))
        assert told["notes"] == {"skipped": 50, "has_gap": True, "has_trouble": False}
        backlog.heartbeat()
        assert json.loads(await backlog.take())["notes"]["skipped"] == 0

    play(scenario)


def test_more_than_can_be_shown_is_said(key: ProjectKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail_poller, "ROWS", 3)
    ada = owner()

    def make_many() -> None:
        with transaction.atomic():  # so that all are there at the same reading
            for _ in range(4):
                make_request(key)

    async def scenario() -> None:
        socket = Socket(ada)
        await socket.open()
        assert (await socket.message())["rows"] == []
        await socket.message_with((await off_loop(make_request, key)).pk)
        await off_loop(make_many)
        while not (await socket.message())["notes"]["has_gap"]:
            pass
        await socket.leave()

    play(scenario)


def test_one_person_opens_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "MOST_SOCKETS_OF_A_PERSON", 2)
    ada = owner()

    async def scenario() -> None:
        sockets = [Socket(ada), Socket(ada)]
        assert [await socket.open() for socket in sockets] == [True, True]
        third = Socket(ada)
        await third.open()
        assert await third.close_code() == consumer.TOO_MANY
        await third.leave()
        await sockets.pop().leave()
        fourth = Socket(ada)
        await fourth.open()
        await fourth.message()
        await fourth.leave()
        await sockets.pop().leave()

    play(scenario)


def test_a_socket_that_sends_a_message_is_closed() -> None:
    ada = owner()

    async def scenario() -> None:
        socket = Socket(ada)
        await socket.open()
        await socket.say("let me in")
        assert await socket.close_code() == consumer.POLICY_VIOLATION
        await socket.leave()

    play(scenario)


def test_watching_holds_no_database_connection(key: ProjectKey, database_vendor: str) -> None:
    if database_vendor != "postgresql":
        pytest.skip("SQLite has no pool to run dry")
    ada = owner()

    async def scenario() -> None:
        sockets = [Socket(ada) for _ in range(3)]
        for socket in sockets:
            await socket.open()
            await socket.message()
        for _ in range(5):
            row = await off_loop(make_request, key)
            await sockets[0].message_with(row.pk)
        await until(lambda: in_use() <= before)
        for socket in sockets:
            await socket.leave()

    def in_use() -> int:
        seen = connection.pool.get_stats()  # type: ignore[attr-defined]
        return int(seen["pool_size"]) - int(seen["pool_available"])

    connection.close()  # ours
    before = in_use()  # threads that other tests have left may keep theirs
    play(scenario)


def test_reading_takes_one_query_however_many_there_are(
    key: ProjectKey, django_assert_num_queries: Any
) -> None:
    for _ in range(3):
        make_request(key)
    with django_assert_num_queries(1):
        assert len(live_tail_poller.newest_requests()) == 3
