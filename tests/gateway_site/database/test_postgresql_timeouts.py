"""Waits on PostgreSQL that end by the client's clock, and those that must not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from gateway_site.database.libpq_pipeline import Pipeline
from gateway_site.database.postgresql import deadlines
from gateway_site.database.postgresql.circuit_breaker import DatabaseUnavailable
from gateway_site.database.postgresql.connection import DeadlineConnection
from tests.e2e.waiting import until
from tests.harness.stalling_proxy import StallingProxy

# For a machine that has other things to do; the clock of these tests is one second.
SOON_SECONDS = 4.0


@pytest.fixture(autouse=True)
def _short_clock(transactional_db: None, settings: Any) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server")
    settings.GATEWAY_DATABASE_WAIT_SECONDS = 1


@pytest.fixture
def proxy() -> Iterator[StallingProxy]:
    directory = connection.settings_dict["HOST"]

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(f"{directory}/.s.PGSQL.5432")
        return made

    with StallingProxy(connect) as made:
        yield made


@pytest.fixture
def pooled(proxy: StallingProxy) -> Iterator[Any]:
    """Django's connection through the proxy, with a pool of its own."""
    made: Any = connections["default"].copy("through the proxy")
    made.settings_dict |= {"HOST": "127.0.0.1", "PORT": proxy.port}
    made.settings_dict["OPTIONS"]["pool"] |= {"min_size": 1, "max_size": 4}
    yield made
    made.close()
    made.close_pool()


def connect(proxy: StallingProxy) -> DeadlineConnection:
    name = str(connection.settings_dict["NAME"])
    return DeadlineConnection.connect(
        host="127.0.0.1", port=proxy.port, user="postgres", dbname=name, autocommit=True
    )


def run(line: DeadlineConnection, statement: str, is_pipelined: bool) -> None:
    if is_pipelined:
        pipeline = Pipeline(line, prepares=False)
        pipeline.queue(statement)
        pipeline.deliver()
    else:
        line.execute(statement)


def ask(wrapper: Any, statement: str = "SELECT 1") -> Any:
    """One statement in a connection of its own, as a request has it."""
    try:
        with wrapper.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()
    finally:
        wrapper.close()


def test_a_long_statement_of_a_server_that_lives_goes_on(proxy: StallingProxy) -> None:
    with connect(proxy) as line:
        assert line.execute("SELECT pg_sleep(2.5)::text, 7").fetchone() == ("", 7)


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_a_deadline_ends_a_statement_whatever_the_server_says(
    proxy: StallingProxy, is_pipelined: bool
) -> None:
    began = time.monotonic()
    line = connect(proxy)

    with deadlines.deadline(0.3), pytest.raises(DatabaseUnavailable):
        run(line, "SELECT pg_sleep(20)", is_pipelined)

    assert time.monotonic() - began < SOON_SECONDS
    assert line.closed


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_a_silent_server_ends_every_wait_and_then_nobody_waits(
    proxy: StallingProxy, is_pipelined: bool
) -> None:
    line = connect(proxy)
    proxy.stall()
    began = time.monotonic()

    with pytest.raises(DatabaseUnavailable):
        run(line, "SELECT 1", is_pipelined)
    assert time.monotonic() - began < SOON_SECONDS
    at_once = time.monotonic()
    for _ in range(20):
        with pytest.raises(DatabaseUnavailable):
            connect(proxy)
    assert time.monotonic() - at_once < 1

    proxy.forward()
    until(lambda: not line.breaker.is_open)
    with connect(proxy) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_a_pool_recovers_from_an_outage_and_keeps_no_connection_from_before(
    proxy: StallingProxy, pooled: Any
) -> None:
    assert ask(pooled) == (1,)
    for begin in (proxy.stall, proxy.refuse):
        begin()
        for _ in range(3):
            with pytest.raises(OperationalError):
                ask(pooled)
        proxy.forward()
        until(lambda: _answers(pooled))

    def is_whole() -> bool:
        stats = pooled.pool.get_stats()
        return bool(0 < stats["pool_available"] == stats["pool_size"] <= 4)

    until(is_whole)  # none leaked, and none is being waited for


def _answers(wrapper: Any) -> bool:
    try:
        return bool(ask(wrapper) == (1,))
    except OperationalError:
        return False


def test_an_idle_connection_that_the_network_forgot_is_replaced_before_it_is_used(
    proxy: StallingProxy, pooled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_site.database.postgresql.connection.PING_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("gateway_site.database.postgresql.connection.PING_SECONDS", 0.3)
    assert ask(pooled) == (1,)
    proxy.forget()

    assert ask(pooled) == (1,)


def test_a_server_that_closed_an_idle_connection_costs_nobody_a_request(pooled: Any) -> None:
    assert ask(pooled) == (1,)
    ended = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = %s"
    with pooled.cursor() as cursor:
        cursor.execute("SELECT set_config('application_name', 'ended', false)")
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute(ended, ["ended"])
        assert cursor.fetchone() == (1,)

    assert ask(pooled) == (1,)


def test_too_many_clients_are_no_outage(proxy: StallingProxy) -> None:
    with connect(proxy) as line:
        refused = psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already")

        line.breaker.record_failed_connect(refused)

        assert not line.breaker.is_open
