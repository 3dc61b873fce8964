"""
The rules of the ledger, over rows already read and locked. Nothing here touches a database.

Operations are decided one after the other and each sees what the ones before it did, so a hold that does
not fit is refused alone and a smaller one behind it may still be admitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec import structs

from billing.ledger import key_rate_limit
from billing.ledger.cap_periods import period_of
from billing.ledger.changes import (
    AccountDelta,
    Changes,
    NewLine,
    NewPeriod,
    NewReservation,
    NewUnrolled,
    PeriodDelta,
    ResolvedReservation,
)
from billing.ledger.operations import (
    ChargeObserved,
    Expire,
    Hold,
    HoldRequest,
    LedgerLimits,
    MarkUnknown,
    Reconcile,
    Release,
    ReleaseUnknown,
    ReservationOutcome,
    Resolution,
    Settle,
    WriteOff,
)
from billing.ledger.rows import CapRow, LockedRows, MeterRow, PeriodRow, ReservationRow, quantities_in
from billing.models import ChargeBasis, EndedBy, ReservationState
from billing.money import MAX_NANOUSD, usd
from billing.prices import bill
from billing.prices.bill import BillLine
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from gateway_site.api.errors import (
    ApiError,
    InsufficientCredit,
    NotFound,
    ProjectArchivedForUse,
    SpendingCapExceeded,
    Unauthenticated,
    Unavailable,
)

# More than any backend generates for one completion.
FASTEST_TOKENS_A_SECOND = 3_000


class OperationIds(NamedTuple):
    """The ids of an operation as rows have them; those of the project and the key only for a hold."""

    reservation: str
    organization: str
    project: str = ""
    key: str = ""


class Decisions:
    """Decides one batch of operations, and collects what it changes."""

    def __init__(self, rows: LockedRows, limits: LedgerLimits) -> None:
        self.now = rows.now
        self.window = self.now.replace(second=0, microsecond=0)
        self.rows = rows
        self.limits = limits
        self.changes = Changes(self.now, self.now + timedelta(seconds=limits.lease_seconds))
        # Keys whose requests of this minute are spent, so that the ledger need not ask again.
        self.spent_keys: set[str] = set()

    # --- ending a reservation ------------------------------------------------------------------------

    def resolve(self, operation: Resolution, ids: OperationIds) -> ReservationOutcome | ApiError:
        row = self.rows.reservations.get(ids.reservation)
        if row is None or row.organization_id != ids.organization:
            return NotFound(f"There is no reservation {operation.reservation_id}.")
        before, held = row.state, row.reserved
        if before == ReservationState.HELD:
            self._end_held(row, operation)
        elif before == ReservationState.UNKNOWN:
            self._end_unknown(row, operation)
        won = row.state != before
        extended = max(0, row.reserved - held) if won else 0
        return ReservationOutcome(ReservationState(row.state), row.charged, row.loss, extended, won)

    def _end_held(self, row: ReservationRow, operation: Resolution) -> None:
        match operation:
            case Settle():
                row.ended_by = operation.ended_by
                self._settle(row, operation.used, operation.basis)
            case Release():
                row.ended_by = operation.ended_by
                self._end(row, ReservationState.RELEASED)
            case MarkUnknown():
                row.ended_by = operation.ended_by
                self._mark_unknown_or_release(row)
            case Expire() if self._is_lost(row, operation):
                row.ended_by = EndedBy.CRASH
                used = quantities_in(row.used)
                if row.dispatched_at is not None and used is not None:
                    self._settle(row, used, ChargeBasis.CHECKPOINT)
                else:
                    self._mark_unknown_or_release(row)

    def _end_unknown(self, row: ReservationRow, operation: Resolution) -> None:
        match operation:
            case Settle():
                self._settle(row, operation.used, ChargeBasis.RECONCILED)
            case Reconcile():
                cost = operation.amount_nanousd
                charged = self._extend_to(row, cost)
                self._charge(row, cost, [BillLine(bill.RECONCILED, 1, charged)], ChargeBasis.RECONCILED)
            case ChargeObserved() if (used := quantities_in(row.used)) is not None:
                self._settle(row, used, ChargeBasis.RECONCILED)
            case ReleaseUnknown():
                self._end(row, ReservationState.RELEASED)
            case WriteOff():
                self._end(row, ReservationState.WRITTEN_OFF, loss=row.reserved)
            case ChargeObserved():
                self._give_up(row)
            case Expire() if self._is_too_old(row, operation):
                self._give_up(row)

    def _is_lost(self, row: ReservationRow, operation: Expire) -> bool:
        # By value where nobody gave a time: the sweeper has watched the lease, and no clock need agree.
        if operation.as_of is None:
            return row.lease_expires_at == operation.unrenewed_lease
        return row.lease_expires_at < operation.as_of

    def _is_too_old(self, row: ReservationRow, operation: Expire) -> bool:
        patience = timedelta(minutes=self.limits.unknown_minutes)
        return row.unknown_at is not None and row.unknown_at < (operation.as_of or self.now) - patience

    def _mark_unknown_or_release(self, row: ReservationRow) -> None:
        # What never left this process has provably cost nothing.
        if row.dispatched_at is None:
            self._end(row, ReservationState.RELEASED)
            return
        self._change_hold(row, min(row.reserved, self._most_generated(row)))
        self._move(row, ReservationState.UNKNOWN)
        row.unknown_at = self.now

    def _most_generated(self, row: ReservationRow) -> int:
        """The most that can have been generated of a request since it was dispatched, in nano-USD."""
        bounds = quantities_in(row.bounds) or Quantities()
        if row.dispatched_at is None or bounds == Quantities():  # admitted before bounds were kept
            return row.reserved
        # A clock that was set back says nothing about how long it took.
        seconds = (self.now - row.dispatched_at).total_seconds()
        tokens = bounds.completion
        if seconds >= 0:
            tokens = min(tokens, math.ceil(FASTEST_TOKENS_A_SECOND * row.choices * max(seconds, 1.0)))
        return hold_amount(self.rows.cards[row.version_id], structs.replace(bounds, completion=tokens))

    def _give_up(self, row: ReservationRow) -> None:
        """Let the customer go free. What the operator may owe the provider is on record."""
        self._end(row, ReservationState.RELEASED, loss=row.reserved)

    def _settle(self, row: ReservationRow, used: Quantities, basis: ChargeBasis) -> None:
        card = self.rows.cards[row.version_id]
        cost = bill.charge(card, used)
        charged = self._extend_to(row, cost)
        self._charge(row, cost, bill.lines(card, used, charged), basis, used)

    def _extend_to(self, row: ReservationRow, cost: int) -> int:
        """Hold more for a request that cost more, as far as credit and caps allow. What can be charged."""
        if cost > row.reserved:
            self._change_hold(row, row.reserved + min(cost - row.reserved, self._left_for(row)))
        return min(cost, row.reserved)

    def _left_for(self, row: ReservationRow) -> int:
        """What the account and every cap over the request have left, in nano-USD."""
        account = self.rows.accounts[row.organization_id]
        left = [account.granted - account.held - account.settled]
        for cap, period in self._caps(row.organization_id, row.project_id, row.key_id, row.admitted_at):
            # A period that is over was not read: what is left of it is not known.
            is_read = (cap.id, period.starts_at) in self.rows.periods
            left.append(cap.limit - period.held - period.settled if is_read else 0)
        return max(0, min(left))

    def _change_hold(self, row: ReservationRow, reserved: int) -> None:
        if reserved != row.reserved:
            difference = reserved - row.reserved
            self._count(row.organization_id, row.project_id, row.key_id, row.admitted_at, difference, 0)
            row.reserved = reserved

    def _charge(
        self,
        row: ReservationRow,
        cost: int,
        lines: list[BillLine],
        basis: ChargeBasis,
        used: Quantities | None = None,
    ) -> None:
        charged = min(cost, row.reserved)
        self._end(row, ReservationState.SETTLED, charged=charged, loss=cost - charged, basis=basis, used=used)
        day = row.admitted_at.astimezone(UTC).date()
        for line in lines:
            # Our choice: a model and what was used of it, as OpenAI's report writes them.
            line_item = f"{row.model}, {line.item}"
            self.changes.lines.append(
                NewLine(
                    row.id,
                    row.organization_id,
                    row.project_id,
                    row.key_id,
                    row.admitted_at,
                    day,
                    line_item,
                    line.quantity,
                    line.amount_nanousd,
                )
            )
            group = (row.organization_id, row.project_id, row.key_id, day, line_item)
            sums = self.changes.unrolled.get(group)
            if sums is None:
                sums = self.changes.unrolled[group] = NewUnrolled(*group)
            sums.quantity += line.quantity
            sums.amount += line.amount_nanousd
            sums.lines += 1

    def _end(
        self,
        row: ReservationRow,
        state: ReservationState,
        *,
        charged: int = 0,
        loss: int = 0,
        basis: str = "",
        used: Quantities | None = None,
    ) -> None:
        self._count(row.organization_id, row.project_id, row.key_id, row.admitted_at, -row.reserved, charged)
        row.charged = charged
        row.loss = min(loss, MAX_NANOUSD)
        self._move(row, state, basis, used)

    def _move(
        self, row: ReservationRow, state: ReservationState, basis: str = "", used: Quantities | None = None
    ) -> None:
        if row.state == ReservationState.HELD:
            meter = self._meter(row.key_id)
            meter.live_holds -= 1
            self.changes.meters[row.key_id] = meter
        row.state = state
        self.changes.resolved[row.id] = ResolvedReservation(
            row.id, state, basis, row.ended_by, row.reserved, row.charged, row.loss, used
        )

    # --- admitting a request -------------------------------------------------------------------------

    def admit(self, request: HoldRequest, ids: OperationIds) -> Hold | ApiError:
        request_id, organization_id, project_id, key_id = ids
        existing = self.rows.reservations.get(request_id)
        if existing is not None:
            # The connection broke on COMMIT and the batch is repeated: it had landed after all.
            is_ours = existing.state == ReservationState.HELD and existing.organization_id == organization_id
            return self._hold(request, existing.admitted_at) if is_ours else Unavailable()
        meter = self._meter(key_id)
        refusal = (
            self._refuse_key(organization_id, project_id, key_id, request.key_digests)
            or self._refuse_over_rate_limit(meter, key_id)
            or self._refuse_over_credit(organization_id, project_id, key_id, request.amount_nanousd)
        )
        if refusal is not None:
            return refusal
        meter.live_holds += 1
        meter.window_requests += 1
        self.changes.meters[key_id] = meter
        self._count(organization_id, project_id, key_id, self.now, request.amount_nanousd, 0)
        self.changes.reservations.append(
            NewReservation(
                request_id,
                organization_id,
                project_id,
                key_id,
                request.model,
                request.choices,
                request.version.id.hex,
                request.bounds,
                request.amount_nanousd,
                request.is_dispatched,
                self.now + timedelta(seconds=request.deadline_seconds),
            )
        )
        return self._hold(request, self.now)

    def _hold(self, request: HoldRequest, admitted_at: datetime) -> Hold:
        return Hold(request.request_id, request.organization_id, request.amount_nanousd, admitted_at)

    def _refuse_key(
        self, organization_id: str, project_id: str, key_id: str, digests: tuple[str, ...] | None
    ) -> ApiError | None:
        key = self.rows.keys.get(key_id)
        project = self.rows.projects.get(project_id)
        if key is None or project is None or key.is_stopped or key.project_id != project_id:
            return Unauthenticated()
        if key.expires_at is not None and key.expires_at <= self.now:
            return Unauthenticated()
        if digests is not None and key.digest not in digests:  # rotated
            return Unauthenticated()
        if project.organization_id != organization_id:
            return Unauthenticated()
        return ProjectArchivedForUse() if project.is_archived else None

    def _refuse_over_rate_limit(self, meter: MeterRow, key_id: str) -> ApiError | None:
        if key_rate_limit.is_spent(meter, self.limits):
            self.spent_keys.add(key_id)
            return key_rate_limit.rate_limited(self.limits, retry_after_seconds=60 - self.now.second)
        return key_rate_limit.refuse_over_concurrency(meter, self.limits)

    def _refuse_over_credit(
        self, organization_id: str, project_id: str, key_id: str, amount: int
    ) -> ApiError | None:
        account = self.rows.accounts[organization_id]
        available = account.granted - account.held - account.settled
        # A free request is admitted whatever is left, and counts for nothing.
        if amount and amount > available:
            return InsufficientCredit(needed=usd(amount), left=usd(available))
        for cap, period in self._caps(organization_id, project_id, key_id, self.now):
            left = cap.limit - period.held - period.settled
            if amount and amount > left:
                return SpendingCapExceeded(
                    scope=cap.scope,
                    period=cap.period,
                    limit=usd(cap.limit),
                    needed=usd(amount),
                    left=usd(max(0, left)),
                )
        return None

    # --- counters ------------------------------------------------------------------------------------

    def _meter(self, key_id: str) -> MeterRow:
        meter = self.rows.meters.get(key_id)
        if meter is None:
            meter = self.rows.meters[key_id] = MeterRow(key_id, 0, self.window, 0)
        key_rate_limit.turn_window(meter, self.window)
        return meter

    def _count(
        self, organization_id: str, project_id: str, key_id: str, moment: datetime, held: int, settled: int
    ) -> None:
        """Add to the account and to every cap that covers a request admitted at `moment`."""
        account = self.rows.accounts[organization_id]
        account.held += held
        account.settled += settled
        account_delta = self.changes.accounts.get(organization_id)
        if account_delta is None:
            account_delta = self.changes.accounts[organization_id] = AccountDelta(organization_id)
        account_delta.held += held
        account_delta.settled += settled
        for cap, period in self._caps(organization_id, project_id, key_id, moment):
            period.held += held
            period.settled += settled
            delta = self._period_delta(cap.id, period.starts_at)
            delta.held += held
            delta.settled += settled

    def _period_delta(self, cap_id: int, starts_at: datetime) -> PeriodDelta | NewPeriod:
        key = (cap_id, starts_at)
        delta = self.changes.new_periods.get(key) or self.changes.periods.get(key)
        if delta is None:
            delta = self.changes.periods[key] = PeriodDelta(cap_id, starts_at)
        return delta

    def _caps(
        self, organization_id: str, project_id: str, key_id: str, moment: datetime
    ) -> Iterator[tuple[CapRow, PeriodRow]]:
        for cap in self.rows.caps.get(organization_id, ()):
            if not cap.covers(project_id, key_id):
                continue
            starts_at, ends_at = period_of(moment, cap.period)
            key = (cap.id, starts_at)
            period = self.rows.periods.get(key)
            if period is None:
                if moment is not self.now:
                    # A request of an older period, which the cap counts only if it existed then: the
                    # statement finds that period's row, or finds none.
                    period = PeriodRow(starts_at)
                else:
                    period = self.rows.periods[key] = PeriodRow(starts_at)
                    self.changes.new_periods[key] = NewPeriod(cap.id, starts_at, ends_at, cap.limit)
            yield cap, period
