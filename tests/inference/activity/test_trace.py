"""One row a request: who, what, how it ended, what it cost and how long it took. Never what was said."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import OperationalError

from billing import services
from gateway_site.database import row_writer
from gateway_site.database.row_writer import RowWriter
from inference.activity import writer as activity_writer
from inference.activity.trace import RequestTrace
from inference.activity.writer import writer
from inference.models import Activity
from tests.factories import SOMEONE
from tests.inference.activity.factories import new_writer, trace
from tests.inference.customer import HELLO, ApiCustomer

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@BOTH
def test_it_works(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("thinker")

    answer = customer.ask("thinker", stream=stream)

    row = customer.activity()
    assert str(row.pk) == answer.headers["x-request-id"]
    assert row.api_key_id == customer.key.pk
    assert (row.project_id, row.organization_id) == (customer.project.pk, customer.project.organization_id)
    assert (row.endpoint, row.model, row.is_stream) == ("/v1/chat/completions", "thinker", stream)
    assert (row.status, row.code, row.attempts, row.deployment) == (200, "", 1, "simulator/thinker")
    assert row.cost_nanousd == customer.reservation().charged_nanousd
    assert row.prompt_tokens == 4
    assert row.reasoning_tokens
    assert row.completion_tokens
    assert row.first_token_ms is not None
    assert 0 <= row.first_token_ms <= row.total_ms


def test_nothing_that_was_said_is_in_it(customer: ApiCustomer) -> None:
    customer.simulate("echo")

    customer.ask("echo", user="someone", prompt_cache_key="mine")

    kept = str(vars(customer.activity()))
    for secret in (HELLO, "hello", customer.value, customer.key.digest, "someone", "mine"):
        assert secret not in kept


@BOTH
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "nothing"}, 404, "model_not_found"),
        ({"n": 0}, 400, "invalid_request"),
        ({"prompt_logprobs": 1}, 501, "unsupported_option"),
    ],
)
def test_a_refusal_is_a_row_too(
    customer: ApiCustomer, fields: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    customer.simulate("echo")

    customer.ask(**{"model": "echo", "stream": stream, **fields})

    row = customer.activity()
    assert (row.status, row.code, row.attempts) == (status, code, 0)
    assert row.cost_nanousd is None


def test_one_that_could_not_be_paid_is_a_row_too(customer: ApiCustomer) -> None:
    customer.simulate("echo")
    services.set_spending_limit(scope=customer.key, period="day", limit_nanousd=1, actor=SOMEONE)

    customer.ask("echo")

    row = customer.activity()
    assert (row.status, row.code, row.model) == (402, "key_day_cap_exceeded", "echo")


def test_a_stranger_leaves_no_row(customer: ApiCustomer) -> None:
    customer.post({}, key="gwk_unknown")

    writer.flush()
    assert not Activity.objects.exists()


# --- the writer ---------------------------------------------------------------------------------------


def test_rows_are_written_without_being_asked(customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "GATHER_SECONDS", 0.01)
    made = new_writer()

    for _ in range(1_200):
        made.add(trace(customer.key))
    deadline = time.monotonic() + 10
    while Activity.objects.count() < 1_200:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made.close(5)


def test_closing_writes_what_waits(customer: ApiCustomer) -> None:
    made = new_writer()
    made.add(trace(customer.key))

    made.close(5)

    assert Activity.objects.count() == 1


def test_a_database_that_is_away_is_waited_for(
    customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, failures = (
        activity_writer.insert_activity,
        [OperationalError("gone"), OperationalError("still gone")],
    )

    def failing(rows: Any) -> None:
        if failures:
            raise failures.pop()
        insert(rows)

    monkeypatch.setattr(row_writer, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(row_writer, "RETRY_SECONDS", 0.01)
    made: RowWriter[RequestTrace] = RowWriter("activity", failing)
    first, second = trace(customer.key), trace(customer.key)

    made.add(first)
    made.add(second)
    deadline = time.monotonic() + 10
    while Activity.objects.count() < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made.close(5)

    assert not failures


def test_the_oldest_go_when_too_many_wait(customer: ApiCustomer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "GATHER_SECONDS", 60)
    made: RowWriter[RequestTrace] = RowWriter("activity", activity_writer.insert_activity, max_queued=3)
    traces = [trace(customer.key) for _ in range(5)]

    for each in traces:
        made.add(each)
    made.flush()

    assert {row.pk for row in Activity.objects.all()} == {each.id for each in traces[2:]}
    made.close(5)


def test_a_row_that_is_there_already_is_left_alone(customer: ApiCustomer) -> None:
    made, seen = new_writer(), trace(customer.key)

    made.add(seen)
    made.flush()
    made.add(seen)
    made.flush()
    made.close(5)

    assert Activity.objects.count() == 1


def test_what_is_noted_while_it_closes_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Noted:
        def row(self) -> str:
            return "row"

    def insert(rows: Any) -> None:
        written.extend(rows)

    monkeypatch.setattr(row_writer, "close_old_connections", lambda: None)
    monkeypatch.setattr(row_writer, "GATHER_SECONDS", 0.0)
    made: RowWriter[Noted] = RowWriter("late", insert)
    flush = made.flush

    def flush_and_then_more() -> None:
        flush()
        if len(written) == 1:
            # After the last look, and before the thread sees that it is to end.
            made._queue.append(Noted())
            made._is_stopped.set()
            made._has_work.set()

    monkeypatch.setattr(made, "flush", flush_and_then_more)
    made.add(Noted())
    thread = made._thread
    assert thread is not None
    thread.join(10)

    assert not thread.is_alive()
    assert written == ["row", "row"]
