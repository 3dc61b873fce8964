"""One transaction for many operations: read and lock, decide, write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from billing.ledger.changes import Changes, TouchedReservations
from billing.ledger.decisions import Decisions, OperationIds
from billing.ledger.key_rate_limit import MINUTE
from billing.ledger.operations import (
    ChargeObserved,
    Expire,
    Heartbeat,
    HoldRequest,
    LedgerLimits,
    MarkDispatched,
    MarkUnknown,
    Operation,
    OperationResult,
)
from billing.ledger.rows import CardRow, LockedRows, NeededRows
from billing.ledger.stores.postgresql import PostgresStore
from billing.ledger.stores.sqlite import SqliteStore
from billing.prices.card import PriceCard
from gateway_site.api.errors import Unavailable

# Cards never change, so a process keeps those that it has met.
MOST_CARDS = 10_000
_cards: dict[str, PriceCard] = {}


class Store(Protocol):
    def transaction(self) -> AbstractContextManager[None]: ...

    def read(self, needs: NeededRows, *, wait: bool) -> LockedRows: ...

    def read_cards(self, versions: Collection[str]) -> list[CardRow]: ...

    def write(self, changes: Changes) -> Callable[[], TouchedReservations]: ...


@dataclass(slots=True)
class BatchResult:
    """What a batch came to: one answer for each operation, in the same order."""

    answers: list[OperationResult]
    now: datetime
    # Keys that have no request left before `window_ends_at`.
    spent_keys: set[str]
    window_ends_at: datetime


def store_over(connection: BaseDatabaseWrapper, *, is_own: bool = False) -> Store:
    """
    The ledger's statements over a connection of Django's, in whatever transaction it is in.

    With `is_own`, this store is all that will ever be made over the connection.
    """
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        return PostgresStore(connection.connection, prepares=is_own)
    assert isinstance(connection.connection, sqlite3.Connection)  # noqa: S101 - for the type checker
    return SqliteStore(connection.connection)


def run(
    store: Store,
    operations: Sequence[Operation],
    limits: LedgerLimits,
    *,
    repeated: Collection[str] = (),
    wait: bool = True,
) -> BatchResult:
    """Apply the operations and commit. Without `wait`, a row that is locked is an error at once."""
    with store.transaction():
        finish = apply(store, operations, limits, repeated=repeated, wait=wait)
    return finish()


def apply(
    store: Store,
    operations: Sequence[Operation],
    limits: LedgerLimits,
    *,
    repeated: Collection[str] = (),
    wait: bool = True,
) -> Callable[[], BatchResult]:
    """
    Apply the operations in the transaction that is open. Calling what this returns gives the answers,
    which count only once the transaction is committed.

    1. Settlements and the like, because they free credit.
    2. Heartbeats and dispatch marks.
    3. Holds, in the order in which they came.

    `repeated` are ids of holds that may have been committed by an earlier attempt.
    """
    ids = [_ids_of(operation) for operation in operations]
    needs = _needs_of(operations, ids, repeated)
    rows = store.read(needs, wait=wait)
    rows.cards = _cards_for(store, rows, operations)
    decisions = Decisions(rows, limits)
    answers: list[OperationResult] = [False] * len(operations)
    holds: list[tuple[int, HoldRequest]] = []
    for i, operation in enumerate(operations):
        match operation:
            case HoldRequest():
                holds.append((i, operation))
            case Heartbeat(observed=observed):
                heartbeats = decisions.changes.heartbeats
                heartbeats[ids[i].reservation] = observed or heartbeats.get(ids[i].reservation)
            case MarkDispatched():
                decisions.changes.dispatched.add(ids[i].reservation)
            case _:
                answers[i] = decisions.resolve(operation, ids[i])
    for i, request in holds:
        answers[i] = decisions.admit(request, ids[i])
    written = store.write(decisions.changes)
    return partial(_finish, operations, answers, decisions, written)


def _cards_for(store: Store, rows: LockedRows, operations: Sequence[Operation]) -> dict[str, PriceCard]:
    """The price cards that the batch needs. What this process has admitted it need not read."""
    global _cards
    if len(_cards) > MOST_CARDS:
        # Another thread may be in the middle of a batch with the one before.
        _cards = {}
    cards = _cards
    for operation in operations:
        if isinstance(operation, HoldRequest):
            cards[operation.version.id.hex] = operation.version.card
    unread = {row.version_id for row in rows.reservations.values()} - cards.keys()
    if unread:
        cards.update({row.id: row.card for row in store.read_cards(unread)})
    return cards


def _finish(
    operations: Sequence[Operation],
    answers: list[OperationResult],
    decisions: Decisions,
    written: Callable[[], TouchedReservations],
) -> BatchResult:
    touched = written()
    for i, operation in enumerate(operations):
        match operation:
            case Heartbeat(reservation_id=reservation_id):
                answers[i] = reservation_id.hex in touched.alive
            case MarkDispatched(reservation_id=reservation_id) if reservation_id.hex in touched.dispatched:
                answers[i] = True
            case MarkDispatched():
                # The sweeper has released it: nothing stands behind the request any more.
                answers[i] = Unavailable("The request waited too long before it was sent. Try again.")
    return BatchResult(answers, decisions.now, decisions.spent_keys, decisions.window + MINUTE)


def _ids_of(operation: Operation) -> OperationIds:
    if isinstance(operation, HoldRequest):
        return OperationIds(
            operation.request_id.hex,
            operation.organization_id.hex,
            operation.project_id.hex,
            operation.key_id.hex,
        )
    return OperationIds(operation.reservation_id.hex, operation.organization_id.hex)


def _needs_of(
    operations: Sequence[Operation], ids: Sequence[OperationIds], repeated: Collection[str]
) -> NeededRows:
    needs = NeededRows()
    for operation, each in zip(operations, ids, strict=True):
        if isinstance(operation, HoldRequest):
            needs.organizations.add(each.organization)
            needs.projects.add(each.project)
            needs.keys.add(each.key)
            if each.reservation in repeated:
                needs.reservations.add(each.reservation)
        elif not isinstance(operation, Heartbeat | MarkDispatched):  # those change no balance
            needs.organizations.add(each.organization)
            needs.reservations.add(each.reservation)
            needs.quantities |= isinstance(operation, MarkUnknown | ChargeObserved | Expire)
    return needs
