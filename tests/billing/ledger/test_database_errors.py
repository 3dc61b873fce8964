"""The database goes away, is locked, or refuses one operation among many."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from billing.ledger import ledger as ledger_module
from billing.ledger.connection import LedgerConnection
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Heartbeat, Hold, MarkDispatched, Release, ReservationOutcome, Settle
from billing.ledger.stores.postgresql import PostgresStore
from billing.ledger.stores.sqlite import SqliteStore
from billing.models import Account, Reservation
from gateway_site.api.errors import ApiError, InsufficientCredit, Unavailable
from tests.billing.factories import Customer, make_customer, reservation, used

Make = Callable[..., Ledger]


class Outage:
    """While it lasts, nobody can connect, and connections that were open are broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_over = threading.Event()
        self.attempts = 0
        store = LedgerConnection.store

        def store_or_not(broken: LedgerConnection) -> Any:
            if self.is_over.is_set():
                return store(broken)
            self.attempts += 1
            raise OperationalError("connection refused")

        monkeypatch.setattr(LedgerConnection, "store", store_or_not)


def take(ledger: Ledger, customer: Customer, amount: int = 100) -> Hold:
    hold = ledger.call(customer.request(amount))
    assert isinstance(hold, Hold)
    return hold


def test_without_a_database_holds_are_refused_at_once(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    started = time.monotonic()

    with pytest.raises(Unavailable) as refused:
        ledger.call(acme.request())

    assert time.monotonic() - started < 3
    assert refused.value.headers["Retry-After"] == "1"
    assert outage.attempts <= 3
    outage.is_over.set()
    take(ledger, acme)


@pytest.mark.slow
def test_a_settlement_waits_for_the_database_and_lands(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RESOLUTION_WAIT_SECONDS", 0.3)
    hold = take(ledger, acme)
    outage = Outage(monkeypatch)

    outcome = asyncio.run(ledger.settle(hold, used(40)))
    assert (outcome.state, outcome.is_durable) == (None, False)
    assert ledger.call(Release(hold.id, hold.organization_id)) == outcome
    outage.is_over.set()
    assert ledger.close(5) == 0

    assert reservation(hold).charged_nanousd == 40


def test_a_settlement_of_a_caller_that_was_cancelled_lands(ledger: Ledger, acme: Customer) -> None:
    async def main() -> Hold:
        hold = await ledger.reserve(acme.request(100))
        task = asyncio.create_task(ledger.settle(hold, used(40)))
        await asyncio.sleep(0)
        task.cancel()
        return hold

    hold = asyncio.run(main())
    ledger.close(5)

    assert reservation(hold).charged_nanousd == 40


def test_without_a_database_the_heart_goes_on_and_nothing_is_dispatched(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = take(ledger, acme)
    outage = Outage(monkeypatch)

    assert ledger.call(Heartbeat(hold.id, hold.organization_id)) is True
    with pytest.raises(Unavailable):
        ledger.call(MarkDispatched(hold.id, hold.organization_id))
    outage.is_over.set()


@pytest.mark.slow
def test_closing_gives_up_in_time_and_says_what_is_left(
    make_ledger: Make, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RESOLUTION_WAIT_SECONDS", 0.1)
    ledger = make_ledger()
    hold = take(ledger, acme)
    outage = Outage(monkeypatch)
    ledger.call(Settle(hold.id, hold.organization_id, used(1)))

    assert ledger.close(0.3) == 1

    outage.is_over.set()
    # It was only put aside: the next operation starts the thread again, and it lands.
    ledger.call(Heartbeat(hold.id, hold.organization_id))
    assert ledger.close(5) == 0
    assert reservation(hold).state == "settled"


def test_a_commit_whose_answer_was_lost_is_not_done_twice(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = take(ledger, acme, 100)
    with committed_but_unheard(monkeypatch):
        second = take(ledger, acme, 200)
    with committed_but_unheard(monkeypatch):
        outcome = ledger.call(Settle(hold.id, hold.organization_id, used(30)))

    assert isinstance(outcome, ReservationOutcome)
    assert (outcome.state, outcome.charged_nanousd) == ("settled", 30)
    assert reservation(second).state == "held"
    assert Reservation.objects.count() == 2
    assert acme.available == 1_000 - 30 - 200


def test_one_bad_operation_spoils_none_of_the_others(ledger: Ledger, acme: Customer) -> None:
    twice = acme.request(10)
    take(ledger, acme, 1)
    block = threading.Event()

    with pause(ledger, block):
        futures = [
            submit(ledger, each)
            for each in (acme.request(10), twice, twice, acme.request(5_000), acme.request(20))
        ]
        block.set()
        answers = [future.result(5) for future in futures]

    assert [type(answer) for answer in answers] == [Hold, Hold, ApiError, InsufficientCredit, Hold]
    assert answers[2].status == 500
    assert acme.available == 1_000 - 41


def test_a_full_queue_turns_requests_away(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_QUEUED", -1)

    with pytest.raises(Unavailable):
        ledger.call(acme.request())


def test_a_session_that_was_ended_is_opened_again(ledger: Ledger, acme: Customer, is_postgres: bool) -> None:
    if not is_postgres:
        pytest.skip("SQLite has no sessions to end")
    take(ledger, acme)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'gateway ledger'"
        )
    take(ledger, acme)

    assert acme.available == 800


def test_an_organization_that_is_locked_keeps_nobody_else_waiting(
    ledger: Ledger, acme: Customer, is_postgres: bool
) -> None:
    if not is_postgres:
        pytest.skip("SQLite locks the whole file")
    rival = make_customer(credit=100_000)
    hold = take(ledger, acme)
    waits: list[float] = []

    with transaction.atomic():
        Account.objects.select_for_update().get(pk=acme.organization.pk)
        started = time.monotonic()
        settled = submit(ledger, Settle(hold.id, hold.organization_id, used(10)))
        with pytest.raises(Unavailable):
            ledger.call(acme.request())
        assert time.monotonic() - started < 3
        for _ in range(100):
            before = time.monotonic()
            take(ledger, rival, 1)
            submit(ledger, acme.request(1))
            waits.append(time.monotonic() - before)
    # One of them may have been in the batch that found the lock.
    assert sorted(waits)[-2] < 0.5
    assert settled.result(10).won

    deadline = time.monotonic() + 5
    while True:
        try:
            take(ledger, acme)
            break
        except Unavailable:
            assert time.monotonic() < deadline


def submit(ledger: Ledger, operation: Any) -> Any:
    from concurrent.futures import Future

    from billing.ledger.worker import Ticket

    future: Future = Future()
    ledger.worker.submit(Ticket(operation, future, None, time.monotonic()))
    return future


@contextmanager
def pause(ledger: Ledger, until: threading.Event) -> Iterator[None]:
    """The ledger's thread stops before its next batch, so that the batch can be filled."""
    thread = ledger.worker.thread
    collect = thread._collect

    def wait_and_collect() -> Any:
        until.wait(5)
        return collect()

    thread._collect = wait_and_collect  # type: ignore[method-assign]
    # Let the batch that is being collected go by.
    submit(ledger, Release(uuid.uuid4(), uuid.uuid4())).result(5)
    yield
    thread._collect = collect  # type: ignore[method-assign]


@contextmanager
def committed_but_unheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next transaction commits, and the connection breaks before the answer arrives."""
    store = PostgresStore if connection.vendor == "postgresql" else SqliteStore
    original = store.transaction
    strikes = iter([True])

    @contextmanager
    def break_once(self: Any) -> Iterator[None]:
        with original(self):
            yield
        if next(strikes, False):
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(store, "transaction", break_once)
        yield
