"""The receipt of one request: its activity, its money and its verdicts, for the console."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.models import Reservation
from billing.reports.explained_charge import ExplainedCharge, explain_charge
from inference.models import Activity
from policies.models import Verdict


@dataclass(frozen=True, slots=True)
class ReceiptStep:
    """One attempt at a deployment, and its bar in the time of the request."""

    deployment: str
    began: str
    ended: str
    code: str
    # Of the whole, in percent, as a stylesheet reads them.
    begins_at: str
    takes: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """One policy's verdict on the request, as it is shown."""

    verdict: Verdict
    score: str
    threshold: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything that the console shows about one request."""

    activity: Activity
    first_token_at: datetime | None
    took: str
    steps: list[ReceiptStep]
    shows_money: bool
    money: ExplainedCharge | None
    shows_verdicts: bool
    judgements: list[Judgement]


def receipt_of(activity: Activity, *, with_money: bool, with_verdicts: bool) -> Receipt:
    """Gather the receipt, with the parts that the reader may see. Six queries at most."""
    first = activity.first_token_ms
    return Receipt(
        activity=activity,
        first_token_at=None if first is None else activity.created_at + timedelta(milliseconds=first),
        took=f"{activity.total_ms:,} ms",
        steps=_steps(activity),
        shows_money=with_money,
        money=_money(activity) if with_money else None,
        shows_verdicts=with_verdicts,
        judgements=_judgements(activity) if with_verdicts else [],
    )


def _steps(activity: Activity) -> list[ReceiptStep]:
    whole = max([activity.total_ms, 1, *(each["ended_ms"] for each in activity.attempt_log)])
    return [
        ReceiptStep(
            deployment=each["deployment"],
            began=f"{each['began_ms']:,} ms",
            ended=f"{each['ended_ms']:,} ms",
            code=each["code"],
            begins_at=f"{100 * each['began_ms'] / whole:.2f}%",
            # What took no time is seen all the same.
            takes=f"{max(0.5, 100 * (each['ended_ms'] - each['began_ms']) / whole):.2f}%",
        )
        for each in activity.attempt_log
    ]


def _money(activity: Activity) -> ExplainedCharge | None:
    reservation = Reservation.objects.filter(pk=activity.pk).first()
    return None if reservation is None else explain_charge(reservation)


def _judgements(activity: Activity) -> list[Judgement]:
    verdicts = Verdict.objects.filter(request_id=activity.pk).select_related("version__policy").order_by("pk")
    return [
        Judgement(
            verdict=verdict,
            score="\N{EN DASH}" if verdict.score is None else f"{verdict.score:.2%}",
            threshold=f"{verdict.threshold_basis_points / 10_000:.2%}",
        )
        for verdict in verdicts
    ]
