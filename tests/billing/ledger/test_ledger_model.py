"""The ledger against a plain model of it, over random histories with crashes in them."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from billing.ledger import batch
from billing.ledger.operations import (
    ChargeObserved,
    Expire,
    Heartbeat,
    Hold,
    HoldRequest,
    LedgerLimits,
    MarkDispatched,
    MarkUnknown,
    Operation,
    Reconcile,
    Release,
    ReleaseUnknown,
    Settle,
    WriteOff,
)
from billing.models import Reservation
from organization.models import ProjectKey
from tests.billing.factories import Customer, make_customer, used
from tests.harness.ledger_checks import assert_books_balance

EXAMPLES = 120
STEPS = 12
# Leases that outlast the whole run: on a busy machine it takes longer than a usual one, and what is then left
# of it would be orphaned.
LIMITS = LedgerLimits(concurrency=4, lease_seconds=3_600)
OPEN = ("held", "unknown")

VERBS: dict[str, Any] = {
    "release": Release,
    "unknown": MarkUnknown,
    "dispatch": MarkDispatched,
    "expire": Expire,
    "write_off": WriteOff,
    "release_unknown": ReleaseUnknown,
    "charge_observed": ChargeObserved,
}
amounts = st.integers(0, 60)
spots = st.integers(0, 30)
operations = st.one_of(
    st.tuples(st.just("hold"), st.integers(0, 1), amounts, st.booleans()),
    st.tuples(st.sampled_from(["settle", "heartbeat", "reconcile"]), spots, amounts),
    st.tuples(st.sampled_from(list(VERBS)), spots),
)


@dataclass
class Row:
    key: int
    reserved: int
    is_dispatched: bool
    state: str = "held"
    charged: int = 0
    observed: int | None = None


@dataclass
class Reference:
    """The rules, said once more in the simplest way: nothing is kept that can be added up."""

    granted: int = 0
    caps: dict[int | None, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    rows: dict[uuid.UUID, Row] = field(default_factory=dict)

    def used(self, key: int | None = None) -> int:
        mine = [row for row in self.rows.values() if key is None or row.key == key]
        return sum(row.reserved if row.state in OPEN else row.charged for row in mine)

    def hold(self, place: uuid.UUID, key: int, amount: int, is_dispatched: bool) -> bool:
        live = sum(1 for row in self.rows.values() if row.key == key and row.state == "held")
        fits = amount <= self.granted - self.used() and all(
            amount <= limit - self.used(scope) for scope, limit in self.caps.items() if scope in (None, key)
        )
        if key in self.stopped or live >= LIMITS.concurrency or (amount and not fits):
            return False
        self.rows[place] = Row(key, amount, is_dispatched)
        return True

    def end(self, row: Row, verb: str, amount: int = 0) -> bool:
        before = row.state
        if (verb == "settle" and row.state in OPEN) or (verb == "reconcile" and row.state == "unknown"):
            self._charge(row, amount)
        elif verb == "write_off" and row.state == "unknown":
            row.state = "written_off"
        elif verb == "release" and row.state == "held":
            row.state = "released"
        elif verb in ("unknown", "expire") and row.state == "held":
            if verb == "expire" and row.is_dispatched and row.observed is not None:
                self._charge(row, row.observed)
            else:
                row.state = "unknown" if row.is_dispatched else "released"
        elif verb == "charge_observed" and row.state == "unknown" and row.observed is not None:
            self._charge(row, row.observed)
        elif verb in ("expire", "charge_observed", "release_unknown") and row.state == "unknown":
            row.state = "released"
        return row.state != before

    def _charge(self, row: Row, amount: int) -> None:
        """What was held, and beyond it what the account and every cap have left."""
        left = [self.granted - self.used()]
        left += [limit - self.used(scope) for scope, limit in self.caps.items() if scope in (None, row.key)]
        row.charged = min(amount, row.reserved + max(0, min(left)))
        row.state = "settled"


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.customer = make_customer()
        self.keys = [self.customer, self.customer.another_key()]
        self.model = Reference()

    # --- what happens ---

    @rule(amount=st.integers(1, 200))
    def grant(self, amount: int) -> None:
        self.customer.grant(amount)
        self.model.granted += amount

    @rule(
        scope=st.sampled_from([None, 0, 1]),
        period=st.sampled_from(["day", "total"]),
        limit=st.integers(0, 150),
    )
    def limit(self, scope: int | None, period: str, limit: int) -> None:
        # Day and total are the same here, since all happens today; the model keeps the latest of both.
        for each in ("day", "total"):
            if scope is None:
                self.customer.limit("organization", each, limit)
            else:
                self.keys[scope].limit("key", each, limit)
        self.model.caps[scope] = limit

    @rule(key=st.integers(0, 1), stop=st.booleans())
    def suspend(self, key: int, stop: bool) -> None:
        moment = timezone.now() if stop else None
        ProjectKey.objects.filter(pk=self.keys[key].key.pk).update(suspended_at=moment)
        (self.model.stopped.add if stop else self.model.stopped.discard)(key)

    @rule(drawn=st.lists(operations, min_size=1, max_size=8))
    def batch(self, drawn: list[Any]) -> None:
        made = self._made(drawn)
        answers = batch.run(batch.store_over(connection), made, LIMITS).answers
        self._compare(made, answers)

    @rule(drawn=st.lists(operations, min_size=1, max_size=8))
    def crash_before_commit(self, drawn: list[Any]) -> None:
        store = batch.store_over(connection)
        with contextlib.suppress(InterruptedError), store.transaction():
            batch.apply(store, self._made(drawn), LIMITS)
            raise InterruptedError

    @rule(drawn=st.lists(operations, min_size=1, max_size=8))
    def crash_after_commit(self, drawn: list[Any]) -> None:
        """The answers are lost, and the same operations come again."""
        made = self._made(drawn)
        store = batch.store_over(connection)
        first = batch.run(store, made, LIMITS).answers
        holds = {
            operation.request_id.hex
            for operation, answer in zip(made, first, strict=True)
            if isinstance(operation, HoldRequest) and isinstance(answer, Hold)
        }
        landed = [each for each in made if not isinstance(each, HoldRequest) or each.request_id.hex in holds]
        again = batch.run(store, landed, LIMITS, repeated=holds).answers
        self._compare(made, first)
        others = [each for each in zip(landed, again, strict=True) if not isinstance(each[0], HoldRequest)]
        self._compare(*map(list, zip(*others, strict=True)) if others else ([], []))
        assert all(
            isinstance(a, Hold) for o, a in zip(landed, again, strict=True) if isinstance(o, HoldRequest)
        )

    # --- what must be true ---

    @invariant()
    def the_account_is_the_models(self) -> None:
        if not self.model.granted and not self.model.rows:
            return
        account = self.customer.account
        rows = self.model.rows.values()
        assert account.granted_nanousd == self.model.granted
        assert account.held_nanousd == sum(row.reserved for row in rows if row.state in OPEN)
        assert account.settled_nanousd == sum(row.charged for row in rows if row.state == "settled")

    @precondition(lambda self: self.model.rows)
    @invariant()
    def every_reservation_is_the_models(self) -> None:
        found = Reservation.objects.filter(organization=self.customer.organization)
        assert {row.pk: (row.state, row.charged_nanousd or 0) for row in found} == {
            place: (row.state, row.charged) for place, row in self.model.rows.items()
        }

    def teardown(self) -> None:
        assert_books_balance()

    # --- how ---

    def _made(self, drawn: list[Any]) -> list[Operation]:
        places = list(self.model.rows)
        return [made for each in drawn if (made := self._operation(each, places)) is not None]

    def _operation(self, drawn: Any, places: list[uuid.UUID]) -> Operation | None:
        verb = drawn[0]
        if verb == "hold":
            customer: Customer = self.keys[drawn[1]]
            return customer.request(drawn[2], is_dispatched=drawn[3])
        if not places:
            return None
        place = (places[drawn[1] % len(places)], self.customer.organization.pk)
        match verb:
            case "settle":
                return Settle(*place, used(drawn[2]))
            case "heartbeat":
                return Heartbeat(*place, used(drawn[2]))
            case "reconcile":
                return Reconcile(*place, drawn[2])
            case "expire":
                return Expire(*place, timezone.now() + timedelta(hours=2))
            case _:
                made: Operation = VERBS[verb](*place)
                return made

    def _compare(self, made: list[Operation], answers: list[Any]) -> None:
        """Tell the model, in the order that a batch promises, and expect the same answers."""
        together = list(zip(made, answers, strict=True))
        for operation, answer in together:
            if not isinstance(operation, HoldRequest | Heartbeat | MarkDispatched):
                assert answer.won == self._repeat(operation), (operation, answer)
        for operation, answer in together:
            match operation:
                case MarkDispatched(place, _):
                    row = self.model.rows[place]
                    assert (answer is True) == (row.state == "held")
                    row.is_dispatched = row.is_dispatched or row.state == "held"
                case Heartbeat(place, _, observed):
                    row = self.model.rows[place]
                    assert answer == (row.state == "held")
                    if answer and observed:
                        row.observed = observed.prompt
        for operation, answer in together:
            if isinstance(operation, HoldRequest):
                key = [customer.key.pk for customer in self.keys].index(operation.key_id)
                admitted = self.model.hold(
                    operation.request_id, key, operation.amount_nanousd, operation.is_dispatched
                )
                assert isinstance(answer, Hold) == admitted, (operation, answer)

    def _repeat(self, operation: Any) -> bool:
        row = self.model.rows[operation.reservation_id]
        match operation:
            case Settle():
                return self.model.end(row, "settle", operation.used.prompt)
            case Reconcile():
                return self.model.end(row, "reconcile", operation.amount_nanousd)
            case _:
                verb = next(verb for verb, kind in VERBS.items() if isinstance(operation, kind))
                return self.model.end(row, verb)


@pytest.mark.slow
def test_random_histories_end_as_the_model_says(transactional_db: None) -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
