"""Statements travel together; one that fails does not spoil the line for those after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from gateway_site.database.libpq_pipeline import Pipeline

SAY = "SELECT $1::text"


@pytest.fixture
def line(transactional_db: None, database_vendor: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that is nobody else's."""
    if database_vendor != "postgresql":
        pytest.skip("speaks to PostgreSQL alone")
    wrapper = connections["default"].copy()
    wrapper.settings_dict["OPTIONS"].pop("pool", None)
    wrapper.ensure_connection()
    yield wrapper.connection
    wrapper.close()


@pytest.fixture(params=[True, False], ids=["prepared", "plain"])
def pipeline(line: psycopg.Connection[Any], request: pytest.FixtureRequest) -> Pipeline:
    return Pipeline(line, prepares=request.param)


def say(pipeline: Pipeline, word: bytes) -> bytes | None:
    reply = pipeline.queue(SAY, word)
    pipeline.deliver()
    return reply.value


def test_it_works(pipeline: Pipeline) -> None:
    first, second = pipeline.queue(SAY, b"one"), pipeline.queue(SAY, b"two")
    none = pipeline.queue("SELECT 1 WHERE false")

    pipeline.deliver()

    assert (first.value, second.value, none.value) == (b"one", b"two", None)
    assert say(pipeline, b"three") == b"three"


def test_what_is_too_much_for_one_packet_arrives(pipeline: Pipeline) -> None:
    long = b"x" * 5_000_000

    assert say(pipeline, long) == long


def test_after_one_that_fails_nothing_is_done(pipeline: Pipeline, line: psycopg.Connection[Any]) -> None:
    pipeline.queue("CREATE TEMPORARY TABLE noted (word text)")
    pipeline.queue("INSERT INTO noted VALUES ($1)", b"before")
    pipeline.deliver()
    pipeline.queue("INSERT INTO noted VALUES (($1::int / 0)::text)", b"1")
    after = pipeline.queue("INSERT INTO noted VALUES ($1) RETURNING word", b"after")

    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.deliver()

    assert after.value is None
    assert line.execute("SELECT array_agg(word) FROM noted").fetchone() == (["before"],)
    assert say(pipeline, b"as before") == b"as before"


def test_a_statement_that_could_not_be_prepared_is_tried_again(pipeline: Pipeline) -> None:
    missing = "SELECT word FROM noted WHERE word = $1"
    for _ in range(2):
        pipeline.queue(missing, b"here")
        with pytest.raises(psycopg.errors.UndefinedTable):
            pipeline.deliver()

    pipeline.queue("CREATE TEMPORARY TABLE noted (word text)")
    pipeline.queue("INSERT INTO noted VALUES ($1)", b"here")
    found = pipeline.queue(missing, b"here")
    pipeline.deliver()

    assert found.value == b"here"


def test_a_statement_behind_one_that_failed_is_prepared_later(pipeline: Pipeline) -> None:
    pipeline.queue("SELECT $1::int / 0", b"1")
    pipeline.queue(SAY, b"skipped")
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.deliver()

    assert say(pipeline, b"said") == b"said"


def test_a_server_that_hangs_up_is_told_from_a_bad_statement(pipeline: Pipeline) -> None:
    pipeline.queue("SELECT pg_terminate_backend(pg_backend_pid())")
    pipeline.queue(SAY, b"never")

    with pytest.raises(psycopg.OperationalError):
        pipeline.deliver()
    with pytest.raises(psycopg.OperationalError):
        say(pipeline, b"still not")


def test_psycopg_finds_the_connection_as_it_left_it(
    pipeline: Pipeline, line: psycopg.Connection[Any]
) -> None:
    with line.transaction():
        assert say(pipeline, b"between") == b"between"
        assert line.execute("SELECT 1").fetchone() == (1,)
    pipeline.queue("SELECT $1::int / 0", b"1")
    with pytest.raises(psycopg.errors.DivisionByZero), line.transaction():
        pipeline.deliver()
    assert line.execute("SELECT 1").fetchone() == (1,)
