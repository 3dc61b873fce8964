"""The console's page of costs and its CSV download. Both only read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django import forms
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.money import NANO_IN_A_CENT, usd
from billing.reports.cost_table import CostNames, CostRange, totals
from billing.reports.csv_export import csv_pieces, file_name
from billing.reports.query import DIMENSIONS
from gateway_site.api.errors import ApiError
from organization.lookups import find_organization
from organization.models import Organization

MAX_DAYS = 366
EARLIEST, LATEST = date(1970, 1, 1), date(9999, 12, 30)
# More than anyone reads on a page; the file has all.
MAX_ROWS = 500
# So many organizations are offered in a list; where there are more, one is named.
MAX_LISTED = 200
LABELS = {"project_id": "Project", "api_key_id": "API key", "line_item": "Line item"}


class RangeForm(forms.Form):
    organization = forms.CharField(error_messages={"required": "Choose an organization."})
    first_day = forms.DateField(label="First day")
    last_day = forms.DateField(label="Last day")
    group_by = forms.MultipleChoiceField(choices=list(LABELS.items()), required=False)

    def clean_organization(self) -> Organization:
        try:
            return find_organization(self.cleaned_data["organization"])
        except ApiError as error:
            raise forms.ValidationError(error.message) from None

    def clean(self) -> dict[str, Any]:
        first, last = self.cleaned_data.get("first_day"), self.cleaned_data.get("last_day")
        if first and last:
            if first > last:
                raise forms.ValidationError("The first day must not be after the last.")
            if first < EARLIEST or last > LATEST:
                raise forms.ValidationError(f"Days are from {EARLIEST} to {LATEST}.")
            if (last - first).days >= MAX_DAYS:
                raise forms.ValidationError(f"At most {MAX_DAYS} days can be asked for at once.")
        return self.cleaned_data

    def cost_range(self) -> CostRange:
        given = self.cleaned_data
        groups = tuple(name for name in DIMENSIONS if name in given["group_by"])
        return CostRange(given["organization"], given["first_day"], given["last_day"], groups)


@require_safe
@permission_required("billing.view_costline", raise_exception=True)
def costs(request: HttpRequest) -> HttpResponse:
    """Answer the page of an organization's costs over some days, by project, key or line item."""
    organizations = list(Organization.objects.order_by("name")[: MAX_LISTED + 1])
    if not organizations:
        return _page(request, {"organizations": organizations})
    form = RangeForm(_values(request, organizations))
    if not form.is_valid():
        return _page(request, {"organizations": organizations, "form": form}, status=400)
    return _page(request, {"organizations": organizations, "form": form, **_table(form.cost_range())})


@require_safe
@permission_required("billing.view_costline", raise_exception=True)
def costs_csv(request: HttpRequest) -> HttpResponseBase:
    """Download the costs of the page as a CSV file, with a row for each day."""
    organizations = list(Organization.objects.order_by("name")[: MAX_LISTED + 1])
    form = RangeForm(_values(request, organizations))
    if not form.is_valid():
        return _page(request, {"organizations": organizations, "form": form}, status=400)
    cost_range = form.cost_range()
    return StreamingHttpResponse(
        _stream(csv_pieces(cost_range)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file_name(cost_range)}"'},
    )


async def _stream(pieces: Iterator[str]) -> AsyncIterator[str]:
    def next_piece() -> str | None:
        piece = next(pieces, None)
        # A reader may be slow, and a connection that waits for it is missing elsewhere.
        if not connection.in_atomic_block:
            connection.close()
        return piece

    while (piece := await sync_to_async(next_piece)()) is not None:
        yield piece


def _values(request: HttpRequest, organizations: list[Organization]) -> dict[str, Any]:
    """The form's values from the address; this month of the first organization where it has none."""
    today = timezone.now().date()
    given = request.GET
    is_first_visit = "first_day" not in given
    return {
        "organization": given.get("organization", str(organizations[0].pk) if organizations else ""),
        "first_day": given.get("first_day", today.replace(day=1).isoformat()),
        "last_day": given.get("last_day", today.isoformat()),
        "group_by": given.getlist("group_by") or (["project_id"] if is_first_visit else []),
    }


def _table(cost_range: CostRange) -> dict[str, Any]:
    found, names = totals(cost_range), CostNames(cost_range)
    total = sum(amount for _, amount in found)
    decimals = max(
        len(usd(amount).partition(".")[2]) for amount in (NANO_IN_A_CENT, total, *dict(found).values())
    )
    rows = [
        {
            "cells": [
                _cell(name, value, names) for name, value in zip(DIMENSIONS, group, strict=True) if value
            ],
            "amount": _aligned(amount, decimals),
            "percent": f"{100 * amount / total:.1f}" if total else "",
        }
        for group, amount in found[:MAX_ROWS]
    ]
    query = [
        ("organization", str(cost_range.organization.pk)),
        ("first_day", cost_range.first_day.isoformat()),
        ("last_day", cost_range.last_day.isoformat()),
        *(("group_by", name) for name in cost_range.group_by),
    ]
    return {
        "cost_range": cost_range,
        "days": (cost_range.last_day - cost_range.first_day).days + 1,
        "columns": [LABELS[name] for name in cost_range.group_by],
        "rows": rows,
        "total": _aligned(total, decimals),
        "left_out": len(found) - len(rows),
        "left_out_amount": _aligned(sum(amount for _, amount in found[MAX_ROWS:]), decimals),
        "csv_url": f"{reverse('costs-csv')}?{urlencode(query)}",
    }


def _aligned(nanousd: int, decimals: int) -> str:
    """An exact amount with zeros at its end, so that the points of a column are below each other."""
    whole, _, fraction = usd(nanousd).partition(".")
    return f"{whole}.{fraction:0<{decimals}}"


def _cell(dimension: str, value: str, names: CostNames) -> dict[str, str]:
    """A cell of the table: a name, and under it the id that it stands for."""
    if dimension == "line_item":
        return {"label": LABELS[dimension], "name": value}
    known = names.projects if dimension == "project_id" else names.keys
    return {"label": LABELS[dimension], "name": known.get(value, "(unknown)"), "id": value}


def _page(request: HttpRequest, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    everywhere = admin.site.each_context(request)
    today = timezone.now().date()
    last_of_previous = today.replace(day=1) - timedelta(days=1)
    extra = {
        "title": "Costs",
        "labels": LABELS,
        "is_listed": len(context["organizations"]) <= MAX_LISTED,
        "ranges": [
            ("This month", today.replace(day=1), today),
            ("Last month", last_of_previous.replace(day=1), last_of_previous),
            ("Last 7 days", today - timedelta(days=6), today),
            ("Last 30 days", today - timedelta(days=29), today),
        ],
    }
    return TemplateResponse(request, "admin/costs.html", {**everywhere, **extra, **context}, status=status)
