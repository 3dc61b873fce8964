from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone
from msgspec import structs

from billing.ledger import worker as worker_module
from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, HoldRequest, Release, Settle
from billing.models import Account, KeyMeter, Reservation, ReservationState
from gateway_site.api.errors import (
    ApiError,
    ConcurrencyExceeded,
    InsufficientCredit,
    ProjectArchivedForUse,
    RateLimited,
    SpendingCapExceeded,
    Unauthenticated,
)
from organization.models import Project, ProjectKey
from tests.billing.factories import (
    FREE,
    PRICE,
    Customer,
    make_customer,
    reservation,
    stay_within_a_minute,
    used,
    version_of,
)

Make = Callable[..., Ledger]


def hold(ledger: Ledger, request: HoldRequest) -> Hold:
    answer = ledger.call(request)
    assert isinstance(answer, Hold)
    return answer


def test_it_works(ledger: Ledger, acme: Customer) -> None:
    request = acme.request(400, choices=4, deadline_seconds=30)

    taken = hold(ledger, request)

    assert taken.id == request.request_id
    assert acme.available == 600
    row = reservation(taken)
    assert (row.state, row.reserved_nanousd, row.choices, row.price_version.card) == ("held", 400, 4, PRICE)
    assert row.organization_id == acme.organization.pk
    assert row.project_id == acme.project.pk
    assert row.api_key_id == acme.key.pk
    assert row.dispatched_at == row.admitted_at == taken.admitted_at
    assert row.deadline_at == row.admitted_at + timedelta(seconds=30)
    assert row.lease_expires_at == row.admitted_at + timedelta(seconds=15)


def test_the_refusal_says_what_was_needed_and_what_was_left(ledger: Ledger, acme: Customer) -> None:
    with pytest.raises(InsufficientCredit) as refused:
        ledger.call(acme.request(1_001))

    assert refused.value.status == 402
    assert refused.value.code == "insufficient_credit"
    assert "$0.000001001" in refused.value.message
    assert "$0.000001 is left" in refused.value.message
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("scope", ["organization", "project", "key"])
@pytest.mark.parametrize("period", ["day", "month", "total"])
def test_the_refusal_of_a_cap_names_it(ledger: Ledger, acme: Customer, scope: str, period: str) -> None:
    acme.limit(scope, period, 150)
    hold(ledger, acme.request(100))

    with pytest.raises(SpendingCapExceeded) as refused:
        ledger.call(acme.request(51))

    assert refused.value.status == 402
    assert refused.value.code == f"{scope}_{period}_cap_exceeded"
    assert f"limit of the {scope}" in refused.value.message
    assert "$0.00000015 " in refused.value.message
    assert "needs up to $0.000000051, $0.00000005 is left" in refused.value.message
    hold(ledger, acme.request(50))


def test_a_smaller_request_behind_one_that_does_not_fit_is_admitted(ledger: Ledger, acme: Customer) -> None:
    answers = batch_of(ledger, acme.request(600), acme.request(500), acme.request(400))

    assert [type(answer) for answer in answers] == [Hold, InsufficientCredit, Hold]
    assert acme.available == 0


def test_a_settlement_in_the_same_batch_frees_credit_for_a_hold_that_came_first(
    ledger: Ledger, acme: Customer
) -> None:
    first = hold(ledger, acme.request(1_000))

    answers = batch_of(
        ledger, acme.request(900), Settle(first.id, first.organization_id, used(100)), acme.request(1)
    )

    assert [type(answer).__name__ for answer in answers] == [
        "Hold",
        "ReservationOutcome",
        "InsufficientCredit",
    ]


def test_a_free_model_is_admitted_without_credit(ledger: Ledger, transactional_db: None) -> None:
    stranger = make_customer()

    taken = hold(ledger, stranger.request(0, version=version_of(FREE)))

    assert not Account.objects.get(pk=stranger.organization.pk).granted_nanousd
    ledger.call(Settle(taken.id, taken.organization_id, used(10_000)))
    assert reservation(taken).charged_nanousd == 0
    assert [line.amount_nanousd for line in reservation(taken).lines.all()] == [0]


def test_a_free_model_is_admitted_under_a_spent_cap(ledger: Ledger, acme: Customer) -> None:
    acme.limit("key", "total", 0)

    hold(ledger, acme.request(0, version=version_of(FREE)))


@pytest.mark.parametrize(
    "change",
    [{"revoked_at": timezone.now()}, {"suspended_at": timezone.now()}, {"expires_at": timezone.now()}],
)
def test_a_key_that_was_stopped_is_refused(ledger: Ledger, acme: Customer, change: dict) -> None:
    ProjectKey.objects.filter(pk=acme.key.pk).update(**change)

    with pytest.raises(Unauthenticated):
        ledger.call(acme.request())


def test_a_key_that_expires_later_is_admitted(ledger: Ledger, acme: Customer) -> None:
    ProjectKey.objects.filter(pk=acme.key.pk).update(expires_at=timezone.now() + timedelta(minutes=1))

    hold(ledger, acme.request())


def test_an_archived_project_is_refused(ledger: Ledger, acme: Customer) -> None:
    Project.objects.filter(pk=acme.project.pk).update(archived_at=timezone.now())

    with pytest.raises(ProjectArchivedForUse):
        ledger.call(acme.request())


def test_another_customers_key_project_or_organization_is_refused(ledger: Ledger, acme: Customer) -> None:
    rival = make_customer(credit=1_000)

    thefts: list[dict[str, Any]] = [
        {"organization_id": rival.organization.pk},
        {"project_id": rival.project.pk},
        {"key_id": rival.key.pk},
    ]
    for stolen in thefts:
        with pytest.raises(Unauthenticated):
            ledger.call(structs.replace(acme.request(), **stolen))
    assert acme.available == rival.available == 1_000


def test_the_rate_is_refused_with_the_seconds_that_are_left_of_the_minute(
    make_ledger: Make, acme: Customer
) -> None:
    stay_within_a_minute()
    ledger = make_ledger(requests_per_minute=2)
    ledger.call_all([acme.request(), acme.request()])

    with pytest.raises(RateLimited) as refused:
        ledger.call(acme.request())

    assert refused.value.status == 429
    assert refused.value.code == "rate_limit_exceeded"
    assert "2 requests a minute" in refused.value.message
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60


def test_a_spent_minute_is_refused_without_asking_the_database(make_ledger: Make, acme: Customer) -> None:
    stay_within_a_minute()
    ledger = make_ledger(requests_per_minute=1)
    ledger.call(acme.request())
    with pytest.raises(RateLimited):
        ledger.call(acme.request())
    ledger.close(5)

    # The ledger's thread is gone, and refusing does not bring it back.
    with pytest.raises(RateLimited):
        ledger.call(acme.request())

    assert not ledger.worker.thread.is_running
    ledger.worker.spent_keys[acme.key.pk.hex] = 0.0
    KeyMeter.objects.update(window_starts_at=timezone.now() - timedelta(minutes=1))
    hold(ledger, acme.request())


@pytest.mark.parametrize(("minutes_ahead", "is_over"), [(60, True), (1, False), (-60, True)])
def test_a_minute_that_was_spent_while_the_clock_was_wrong_is_over_when_it_is_right(
    make_ledger: Make, acme: Customer, minutes_ahead: int, is_over: bool
) -> None:
    stay_within_a_minute()
    ledger = make_ledger(requests_per_minute=1)
    hold(ledger, acme.request())
    KeyMeter.objects.update(window_starts_at=F("window_starts_at") + timedelta(minutes=minutes_ahead))

    if is_over:
        hold(ledger, acme.request())
    # And then the minute is spent; so is one that a clock was set back into, by seconds.
    with pytest.raises(RateLimited) as refused:
        ledger.call(acme.request())
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60


def test_a_refused_request_uses_up_none_of_the_rate(make_ledger: Make, acme: Customer) -> None:
    ledger = make_ledger(requests_per_minute=1)
    with pytest.raises(InsufficientCredit):
        ledger.call(acme.request(5_000))

    hold(ledger, acme.request())


def test_a_slot_is_free_again_when_a_request_ends_however_it_ends(make_ledger: Make, acme: Customer) -> None:
    ledger = make_ledger(concurrency=1)
    first = hold(ledger, acme.request())
    with pytest.raises(ConcurrencyExceeded) as refused:
        ledger.call(acme.request())
    assert refused.value.code == "concurrency_exceeded"
    assert refused.value.headers["Retry-After"] == "1"

    ledger.call(Release(first.id, first.organization_id))

    hold(ledger, acme.request())


def test_limits_are_of_each_key(make_ledger: Make, acme: Customer) -> None:
    ledger = make_ledger(concurrency=1, requests_per_minute=1)

    hold(ledger, acme.request())
    hold(ledger, acme.another_key().request())


def test_the_number_of_statements_does_not_grow_with_the_batch(ledger: Ledger, acme: Customer) -> None:
    from billing.ledger import batch

    store = batch.store_over(connection)
    counts = []
    for size in (1, 50):
        operations = [acme.request(1) for _ in range(size)]
        with CountStatements(store) as counted:
            batch.run(store, operations, ledger.limits)
        counts.append(counted.count)

    assert counts[0] == counts[1] <= 16


def cancel_at_once(task: asyncio.Task[Hold], deliver: Callable[[], None]) -> None:
    """The batch may or may not have picked it up yet."""
    deliver()


def cancel_before_the_answer(task: asyncio.Task[Hold], deliver: Callable[[], None]) -> None:
    task.cancel()
    asyncio.get_running_loop().call_soon(deliver)


def cancel_after_the_answer(task: asyncio.Task[Hold], deliver: Callable[[], None]) -> None:
    """The answer is there, and the task has not woken up to see it."""
    deliver()
    task.cancel()


@pytest.mark.parametrize("when", [cancel_at_once, cancel_before_the_answer, cancel_after_the_answer])
def test_no_hold_is_left_by_a_caller_that_was_cancelled(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch, when: Callable[..., None]
) -> None:
    task: asyncio.Task[Hold]
    original = worker_module.Worker._deliver

    def deliver(self: worker_module.Worker, pairs: list) -> None:
        when(task, partial(original, self, pairs))

    async def main() -> None:
        nonlocal task
        task = asyncio.create_task(ledger.reserve(acme.request(10)))
        await asyncio.sleep(0)
        if when is cancel_at_once:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # By then the ledger's thread has told this loop all that it had to say, which is heard here.
        await ledger.drain(5)

    monkeypatch.setattr(worker_module.Worker, "_deliver", deliver)
    asyncio.run(main())
    ledger.close(5)

    assert acme.available == 1_000
    assert not Reservation.objects.filter(state=ReservationState.HELD).exists()


def test_no_hold_is_left_by_an_event_loop_that_is_gone(
    ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_committed, is_gone = threading.Event(), threading.Event()
    original = worker_module.Worker._answer

    def answer(self: worker_module.Worker, *arguments: Any) -> None:
        is_committed.set()
        is_gone.wait(5)
        original(self, *arguments)

    async def leave() -> None:
        task = asyncio.create_task(ledger.reserve(acme.request(10)))
        await asyncio.to_thread(is_committed.wait, 5)
        task.cancel()

    monkeypatch.setattr(worker_module.Worker, "_answer", answer)
    asyncio.run(leave())
    assert acme.available == 990
    is_gone.set()
    ledger.close(5)

    assert acme.available == 1_000


class CountStatements:
    """Counts what goes through the store, which does not use Django's cursors."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.count = 0

    def __enter__(self) -> CountStatements:
        for name in ("_send", "_rows", "_each"):
            if hasattr(self.store, name):
                setattr(self.store, name, self._counted(getattr(self.store, name)))
        return self

    def __exit__(self, *arguments: object) -> None:
        pass

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.count += 1
            return method(*arguments)

        return counted


def batch_of(ledger: Ledger, *operations: object) -> list[object]:
    from billing.ledger import batch

    answers = batch.run(batch.store_over(connection), list(operations), ledger.limits).answers  # type: ignore[arg-type]
    assert all(not isinstance(answer, ApiError) or answer.status < 500 for answer in answers)
    return list(answers)
