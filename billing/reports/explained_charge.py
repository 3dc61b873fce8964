"""Why a request is charged what it is: its hold, its prices, its lines and its outcome, for people."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.conf import settings

from billing.corrections import ChargeRevision, history_of
from billing.models import PriceVersion, Reservation
from billing.money import usd
from billing.prices import bill
from billing.prices.bill import BillLine
from billing.prices.card_text import price_with_unit
from billing.prices.hold import hold_amount
from billing.prices.parts import PARTS, PricePart
from billing.prices.price import Price, Quantities
from billing.reports.outcome_sentences import loss_sentence, outcome_sentence, unknown_sentence


@dataclass(frozen=True, slots=True)
class PricedLine:
    """One line of a request's bill, with the price it was made by."""

    item: str
    quantity: str
    # Empty where there is none: what was found out later is an amount and nothing else.
    price: str
    amount: str


@dataclass(frozen=True, slots=True)
class ExplainedHold:
    """What was held for a request, and for how much use. Amounts are exact, in USD."""

    amount: str
    # Of what was admitted before bounds were kept, the hold is all that is known.
    at_admission: str = ""
    bounds: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """Since when nobody knows what a request cost, and what comes of that."""

    since: datetime
    resolves_at: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class ExplainedCorrection:
    """A change of a request's charge after its settlement. Amounts are exact, in USD."""

    made_at: datetime
    reason: str
    # The price version that it is charged by since, and where that comes from.
    version_id: uuid.UUID
    source: str
    before: str
    after: str
    # With its sign; and by line.
    difference: str
    changes: str
    # What there was no credit for, as nearly always nothing.
    uncollected: str


@dataclass(frozen=True, slots=True)
class ExplainedCharge:
    """A request's money in full. Amounts are exact, in USD; empty is what there is none of."""

    reservation: Reservation
    # By which it is charged: that of its admission, or of the last correction. None only where the database
    # has lost it.
    version: PriceVersion | None
    hold: ExplainedHold
    lines: list[PricedLine]
    # The tier that applied, such as `prompt over 200,000 tokens`.
    tier: str
    # None while it is open.
    charged: str | None
    released: str | None
    # By its prices, where that is more than could be charged.
    full_cost: str
    outcome: str
    operator_loss: str
    unknown: UnknownOutcome | None
    # Oldest first.
    corrections: list[ExplainedCorrection]


def explain_charge(reservation: Reservation) -> ExplainedCharge:
    """Gather all that explains a request's charge, in three queries."""
    revisions = history_of(reservation)
    last = revisions[-1] if revisions else None
    admitted_under = reservation.price_version_id
    versions = PriceVersion.objects.in_bulk([admitted_under, *(each.version_id for each in revisions)])
    version = versions.get(last.version_id if last else admitted_under)
    charged = last.charged_nanousd if last else reservation.charged_nanousd
    first_charged = reservation.charged_nanousd
    price = _price_of_lines(version, last, reservation.used_quantities)
    return ExplainedCharge(
        reservation=reservation,
        version=version,
        hold=_hold(reservation, versions.get(admitted_under)),
        lines=[_priced(line, price) for line in last.lines] if last else [],
        tier=_tier(version, reservation.used_quantities) if price else "",
        charged=None if charged is None else usd(charged),
        released=None if first_charged is None else usd(reservation.reserved_nanousd - first_charged),
        full_cost=_full_cost(last),
        outcome=outcome_sentence(reservation),
        # A correction charges anew, and says what it could not.
        operator_loss=loss_sentence(reservation) if len(revisions) < 2 else "",
        unknown=_unknown(reservation),
        corrections=[_correction(*pair, versions) for pair in pairwise(revisions)],
    )


def quantities_text(counts: Quantities) -> str:
    """Quantities as a list of words: `812 prompt tokens, 1 image`. Empty for nothing."""
    return ", ".join(
        _counted(part, count) for part in PARTS if part.quantity and (count := getattr(counts, part.quantity))
    )


def _counted(part: PricePart, count: int) -> str:
    noun = f"{part.item} token" if part.is_per_token else part.item
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"


# --- the hold -----------------------------------------------------------------------------------------


def _hold(reservation: Reservation, version: PriceVersion | None) -> ExplainedHold:
    now = reservation.reserved_nanousd
    bounds = reservation.bound_quantities
    if version is None or bounds == Quantities():
        return ExplainedHold(usd(now))
    at_admission = hold_amount(version.card, bounds)
    if now > at_admission:
        change = (
            f"Extended by ${usd(now - at_admission)}: more was used than the bounds that it was held for."
        )
    elif now < at_admission:
        change = f"Shrunk by ${usd(at_admission - now)}, to what can have been generated by then."
    else:
        change = ""
    return ExplainedHold(usd(now), usd(at_admission), quantities_text(bounds), change)


def _unknown(reservation: Reservation) -> UnknownOutcome | None:
    since = reservation.unknown_at
    if since is None or reservation.state != Reservation.State.UNKNOWN:
        return None
    resolves_at = since + timedelta(minutes=settings.GATEWAY_UNKNOWN_MINUTES)
    return UnknownOutcome(since, resolves_at, unknown_sentence(reservation))


# --- the lines ----------------------------------------------------------------------------------------


def _price_of_lines(
    version: PriceVersion | None, last: ChargeRevision | None, used: Quantities | None
) -> Price | None:
    """The flat price that the lines were made by; none for an amount that was found out later."""
    if version is None or last is None or used is None:
        return None
    is_amount = any(line.item == bill.RECONCILED for line in last.lines)
    return None if is_amount else version.card.price_for(used.prompt)


def _full_cost(last: ChargeRevision | None) -> str:
    if last is None or not last.uncollected_nanousd:
        return ""
    return usd(last.charged_nanousd + last.uncollected_nanousd)


def _priced(line: BillLine, price: Price | None) -> PricedLine:
    part = next((part for part in PARTS if part.item == line.item), None)
    text = "" if part is None or price is None else price_with_unit(part, getattr(price, part.name))
    return PricedLine(line.item, f"{line.quantity:,}", text, usd(line.amount_nanousd))


def _tier(version: PriceVersion | None, used: Quantities | None) -> str:
    over = None if version is None or used is None else version.card.tier_of(used.prompt)
    return "" if over is None else f"prompt over {over:,} tokens"


# --- corrections --------------------------------------------------------------------------------------


def _correction(
    before: ChargeRevision, after: ChargeRevision, versions: Mapping[uuid.UUID, PriceVersion]
) -> ExplainedCorrection:
    version = versions.get(after.version_id)
    return ExplainedCorrection(
        made_at=after.made_at,
        reason=after.reason,
        version_id=after.version_id,
        source="" if version is None else version.source,
        before=usd(before.charged_nanousd),
        after=usd(after.charged_nanousd),
        difference=_signed(after.difference_nanousd),
        changes=", ".join(f"{line.item} {_signed(line.amount_nanousd)}" for line in after.changes),
        uncollected=usd(after.uncollected_nanousd) if after.uncollected_nanousd else "",
    )


def _signed(nanousd: int) -> str:
    sign = "-" if nanousd < 0 else "+" if nanousd else ""
    return f"{sign}${usd(abs(nanousd))}"
