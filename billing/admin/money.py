"""What the console's pages about money share: amounts that people type, and sums for a page of rows."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import Q, Sum
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.ledger.cap_periods import period_of
from billing.models import CapPeriod, DailyCost, SpendingCap, UnrolledCost
from billing.money import parse_usd, short_usd, usd
from gateway_site.console.kit.model_admin import TextInput

SPENT_DAYS = 30


class UsdField(forms.CharField):
    """A form field for an amount in USD, exactly as typed; the cleaned value is nano-USD."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}), **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_usd(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


def money(nanousd: int) -> SafeString:
    """An amount to glance at, with every digit of it for whoever points at it."""
    return format_html('<span title="${}">{}</span>', usd(nanousd), short_usd(nanousd))


def exact_money(nanousd: int) -> SafeString:
    """An amount to be decided on: as everywhere, and with every digit where that leaves some out."""
    short, exact = short_usd(nanousd), usd(nanousd)
    if parse_usd(short.replace("$", "").replace(",", "")) == nanousd:
        return format_html("<strong>{}</strong>", short)
    return format_html("<strong>{}</strong> (exactly ${})", short, exact)


def spent_by(
    column: str, ids: Iterable[uuid.UUID], organization_ids: Iterable[uuid.UUID]
) -> dict[uuid.UUID, int]:
    """
    What each of these projects or keys (or organizations) spent in the last days, in one statement.

    The organizations are named because the sums' index begins with them.
    """
    since = timezone.now().date() - timedelta(days=SPENT_DAYS - 1)
    wanted = Q(organization__in=set(organization_ids), day__gte=since) & Q(**{f"{column}__in": set(ids)})
    rolled_up, not_yet = (
        model.objects.filter(wanted)
        .values(column)
        .annotate(amount=Sum("amount_nanousd"))
        .values_list(column, "amount")
        for model in (DailyCost, UnrolledCost)
    )
    sums: defaultdict[uuid.UUID, int] = defaultdict(int)
    for identifier, amount in rolled_up.union(not_yet, all=True):
        sums[identifier] += int(amount)  # PostgreSQL sums whole numbers to a decimal
    return dict(sums)


def used_now(caps: Iterable[SpendingCap]) -> dict[int, int]:
    """What each limit has counted in its current period, held and spent, by the limit's id."""
    now = timezone.now()
    starts = {cap.pk: period_of(now, cap.period)[0] for cap in caps}
    periods = CapPeriod.objects.filter(cap__in=starts, starts_at__in=set(starts.values()))
    return {
        period.cap_id: period.held_nanousd + period.settled_nanousd
        for period in periods
        if starts[period.cap_id] == period.starts_at
    }
