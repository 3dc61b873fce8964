"""
What callers ask of the ledger. Plain values: nothing here touches a database. (Structs, because a frozen
dataclass takes five times as long to make, and every request makes several.)

    from billing.ledger.ledger import get_ledger            # one per process, made on first use
    from billing.prices.hold import hold_amount
    from billing.prices.price import Quantities
    from billing.ledger.operations import HoldRequest
    from billing.models import ChargeBasis, EndedBy

    ledger = get_ledger()
    bounds = Quantities(prompt=812, completion=n * 1024)
    hold = await ledger.reserve(HoldRequest(request_id=..., organization_id=..., project_id=..., key_id=...,
                                            amount_nanousd=hold_amount(version.card, bounds), bounds=bounds,
                                            model="m", version=version, choices=n,
                                            key_digests=key.presented_digests,
                                            deadline_seconds=240, is_dispatched=True))
    await ledger.mark_dispatched(hold)               # only if it was taken with is_dispatched=False
    await ledger.heartbeat(hold, Quantities(...))    # every GATEWAY_HEARTBEAT_SECONDS; None: nothing yet
    outcome = await ledger.settle(hold, Quantities(prompt=800, completion=120), ChargeBasis.USAGE)
    outcome = await ledger.release(hold, EndedBy.BACKEND)         # provably nothing was generated
    outcome = await ledger.mark_unknown(hold, EndedBy.DEADLINE)   # dispatched; what happened is not known

* `reserve` returns a Hold or raises: Unauthenticated (key revoked, expired, suspended, rotated, or not of
  this project), ProjectArchivedForUse, RateLimited, ConcurrencyExceeded, InsufficientCredit,
  SpendingCapExceeded, Unavailable (the database did not answer in GATEWAY_ADMISSION_WAIT_SECONDS).
  A caller that is cancelled while it waits leaves no hold behind.
* `settle`, `release` and `mark_unknown` never fail for a business reason and never need a retry: once asked,
  the ledger repeats them until they land. They return a ReservationOutcome. If the database is away they
  return after a bounded wait with `is_durable=False`, and go on trying behind the caller's back. Cancelling
  the caller does not cancel them. The first one to land wins; later ones get the outcome that won, with
  `won=False`. Settling an `unknown` reservation reconciles it.
* `mark_dispatched` raises Unavailable if the mark could not be made durable; do not call upstream then.
* `heartbeat` returns False if the reservation is not held any more (the sweeper took it), and True if it
  is or if the database did not answer.
* From a thread or a command, outside any transaction: `ledger.call(operation)` with one of the
  classes below.
* `await ledger.drain(seconds)` or `ledger.close(seconds)` before the process ends.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from msgspec import Struct

from billing.models import ChargeBasis, EndedBy, ReservationState
from billing.prices.card import CardVersion
from billing.prices.price import Quantities
from gateway_site.api.errors import ApiError


class HoldRequest(Struct, frozen=True):
    """Ask for `amount_nanousd` of credit for one request with all its completions."""

    request_id: uuid.UUID
    organization_id: uuid.UUID
    project_id: uuid.UUID
    key_id: uuid.UUID
    amount_nanousd: int
    model: str
    # The price card that it is admitted under, and the most that it may use.
    version: CardVersion
    bounds: Quantities
    # Of the value that the caller presented: the key must still be stored under one of them. None where
    # nobody presented any, as in a benchmark.
    key_digests: tuple[str, ...] | None = None
    choices: int = 1
    deadline_seconds: int = 240
    # False while request policies are still to be judged: a crash before `mark_dispatched` costs nothing.
    is_dispatched: bool = True


class Hold(Struct, frozen=True):
    """Credit promised to one request. It lasts until it is settled, released or given up as unknown."""

    id: uuid.UUID
    organization_id: uuid.UUID
    amount_nanousd: int
    admitted_at: datetime


class ReservationOutcome(Struct, frozen=True):
    """How a reservation stands after an operation that was to resolve it."""

    state: ReservationState | None
    charged_nanousd: int | None = None
    operator_loss_nanousd: int = 0
    # What was charged beyond the hold.
    extended_nanousd: int = 0
    # Whether this very request made it so.
    won: bool = False
    is_durable: bool = True


class _OnReservation(Struct, frozen=True):
    reservation_id: uuid.UUID
    organization_id: uuid.UUID


class Settle(_OnReservation, frozen=True):
    """The request used this much: held, or unknown until now, becomes settled."""

    used: Quantities
    basis: ChargeBasis = ChargeBasis.USAGE
    ended_by: EndedBy = EndedBy.COMPLETE


class Release(_OnReservation, frozen=True):
    """Nothing was generated: held becomes released."""

    ended_by: EndedBy = EndedBy.BACKEND


class MarkUnknown(_OnReservation, frozen=True):
    """
    What was generated cannot be known: held becomes unknown.

    The hold shrinks to what can have been generated since the request was dispatched.
    """

    ended_by: EndedBy = EndedBy.BACKEND


class Reconcile(_OnReservation, frozen=True):
    """An operator found out what the request cost: unknown becomes settled."""

    amount_nanousd: int


class ChargeObserved(_OnReservation, frozen=True):
    """An operator charges what was seen of an unknown request; what showed nothing becomes released."""


class ReleaseUnknown(_OnReservation, frozen=True):
    """An operator knows that nothing is owed: unknown becomes released, without a loss."""


class WriteOff(_OnReservation, frozen=True):
    """An operator gives up: unknown becomes written off, and its hold the operator's loss."""


class Expire(_OnReservation, frozen=True):
    """
    Resolve the reservation by its row if the request is lost, or the unknown is too old. For the sweeper.

    A hold is lost if its lease is still `unrenewed_lease`, or, asked `as_of` a time, if it ran out before.
    """

    as_of: datetime | None = None
    unrenewed_lease: datetime | None = None


class Heartbeat(_OnReservation, frozen=True):
    """The request is alive, and has used this much so far."""

    observed: Quantities | None = None


class MarkDispatched(_OnReservation, frozen=True):
    """The first byte is about to go upstream."""


Resolution = Settle | Release | MarkUnknown | Reconcile | ChargeObserved | ReleaseUnknown | WriteOff | Expire
Operation = HoldRequest | Resolution | Heartbeat | MarkDispatched
# What one operation comes to: a refusal is a value here, and is raised where the caller waits.
OperationResult = Hold | ReservationOutcome | bool | ApiError


class LedgerLimits(Struct, frozen=True):
    """What applies to every key; 0 means no limit."""

    requests_per_minute: int = 0
    concurrency: int = 0
    lease_seconds: int = 15
    unknown_minutes: int = 10
