"""
The overview, which is the console's first page: credit, spending, traffic, failures and what is unsettled.

It reads sums by day, accounts, and two small indexes, so it is as quick with ten million requests as with
ten. Each block is for people who may open the list behind it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from billing.models import Account, CreditGrant, LedgerAudit
from billing.money import short_usd, usd
from billing.reports import spending
from billing.reports.spending import Credit, ProjectDay
from gateway_site.api.identifiers import uuid_or_none
from gateway_site.console.kit.timestamps import relative, timestamp
from gateway_site.console.overview import chart, traffic
from gateway_site.console.overview.setup_checklist import setup_checklist
from organization.models import Organization, Project, ProjectKey

DAYS, WEEK = 30, 7
TOP_KEYS = 8
NAMED_SHORTAGES = 5
AUDIT_IS_LATE = timedelta(days=2)
# So many organizations are offered in a list; where there are more, their own pages lead here.
LISTED = 200


@dataclass(frozen=True, slots=True)
class OverviewScope:
    """Who looks at the overview, at which organization, and on which day."""

    request: HttpRequest
    organization: Organization | None
    today: date

    @property
    def organization_id(self) -> uuid.UUID | None:
        return self.organization.pk if self.organization else None

    @property
    def first_day(self) -> date:
        return self.today - timedelta(days=DAYS - 1)

    @property
    def week_day(self) -> date:
        return self.today - timedelta(days=WEEK - 1)

    def may(self, permission: str) -> bool:
        return self.request.user.has_perm(permission)


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Fill the context of Django admin's index with what this person may see."""
    offered = _offered(request)
    chosen, is_unknown = _chosen(request, offered)
    scope = OverviewScope(request, chosen, timezone.now().date())
    spent = _spent(scope)
    credits = spending.credit_of(scope.organization_id) if scope.may("billing.view_account") else None
    return {
        **context,
        "title": "Overview",
        "days": DAYS,
        "chosen": chosen,
        "is_unknown_organization": is_unknown,
        "offered": offered if 1 < len(offered) <= LISTED else [],
        "low_credit": _low_credit(scope, credits, spent),
        "ledger": _ledger(scope),
        "cards": [*_money_cards(scope, credits, spent), *_traffic_cards(scope)],
        "chart": _chart(scope, spent),
        "keys": _top_keys(scope),
        "policies": _policies(scope),
        "failures": _failures(scope),
        "unsettled": _unsettled(scope, credits),
        "setup": setup_checklist(request) if scope.may("organization.view_organization") else None,
    }


def _offered(request: HttpRequest) -> list[Organization]:
    if not request.user.has_perm("organization.view_organization"):
        return []
    return list(Organization.objects.order_by("name")[: LISTED + 1])


def _chosen(request: HttpRequest, offered: list[Organization]) -> tuple[Organization | None, bool]:
    """The organization in the address, and whether there is one there that nobody has."""
    text = request.GET.get("organization", "")
    if not text or not request.user.has_perm("organization.view_organization"):
        return None, False
    identifier = uuid_or_none(text)
    known = {organization.pk: organization for organization in offered}
    found = known.get(identifier) if identifier else None
    if found is None and identifier is not None and len(offered) > LISTED:
        found = Organization.objects.filter(pk=identifier).first()
    return found, found is None


def _spent(scope: OverviewScope) -> list[ProjectDay] | None:
    if not scope.may("billing.view_costline"):
        return None
    return spending.spent_by_project(scope.first_day, scope.organization_id)


# --- banners -----------------------------------------------------------------------------------------


def _low_credit(
    scope: OverviewScope, credits: list[Credit] | None, spent: list[ProjectDay] | None
) -> dict[str, Any]:
    if credits is None:
        return {}
    # A person who may see credit is warned of it, though they may not see what it was spent on.
    known = spent if spent is not None else spending.spent_by_project(scope.week_day, scope.organization_id)
    in_week: defaultdict[uuid.UUID, int] = defaultdict(int)
    for each in known:
        if each.day >= scope.week_day:
            in_week[each.organization_id] += each.amount_nanousd
    found = spending.shortages(credits, in_week)
    grant = reverse("admin:billing_creditgrant_add") if scope.may("billing.add_creditgrant") else ""
    return {
        "named": [
            {
                "name": each.credit.name,
                "available": short_usd(each.credit.available_nanousd),
                "days_left": f"{each.days_left:.1f}" if each.credit.available_nanousd > 0 else "",
                "url": reverse("admin:billing_account_change", args=[each.credit.organization_id]),
                "grant_url": f"{grant}?organization={each.credit.organization_id}" if grant else "",
            }
            for each in found[:NAMED_SHORTAGES]
        ],
        "more": max(0, len(found) - NAMED_SHORTAGES),
    }


def _ledger(scope: OverviewScope) -> dict[str, Any]:
    if not scope.may("billing.view_ledgeraudit"):
        return {}
    newest = LedgerAudit.objects.order_by("-id").first()
    if newest is None:
        first = CreditGrant.objects.order_by("id").values_list("created_at", flat=True).first()
        is_late = first is not None and first < timezone.now() - AUDIT_IS_LATE
        return {"is_late": is_late, "last": None}
    return {
        "findings": newest.findings if newest.broken else [],
        "broken": newest.broken,
        "url": reverse("admin:billing_ledgeraudit_change", args=[newest.pk]),
        "is_late": newest.finished_at < timezone.now() - AUDIT_IS_LATE,
        "last": relative(newest.finished_at),
    }


# --- cards -------------------------------------------------------------------------------------------


def _card(title: str, value: str, note: str, url: str, **extra: str) -> dict[str, str]:
    return {"title": title, "value": value, "note": note, "url": url, **extra}


def _money_cards(
    scope: OverviewScope, credits: list[Credit] | None, spent: list[ProjectDay] | None
) -> list[dict[str, str]]:
    cards = []
    if credits is not None:
        available = sum(credit.available_nanousd for credit in credits)
        held = sum(credit.held_nanousd for credit in credits)
        cards.append(
            _card(
                "Credit left",
                short_usd(available),
                f"{short_usd(held)} more is held for open requests",
                _credit_url(scope),
                exact=f"{usd(available)} USD",
            )
        )
    if spent is not None:
        total = sum(each.amount_nanousd for each in spent)
        today = sum(each.amount_nanousd for each in spent if each.day == scope.today)
        cards.append(
            _card(
                f"Spent in {DAYS} days",
                short_usd(total),
                f"{short_usd(today)} today",
                _costs_url(scope),
                exact=f"{usd(total)} USD",
            )
        )
    return cards


def _credit_url(scope: OverviewScope) -> str:
    if scope.organization is None:
        return reverse("admin:billing_account_changelist")
    if not Account.objects.filter(pk=scope.organization_id).exists():
        return reverse("admin:organization_organization_change", args=[scope.organization_id])
    return reverse("admin:billing_account_change", args=[scope.organization_id])


def _costs_url(scope: OverviewScope) -> str:
    query = f"first_day={scope.first_day}&last_day={scope.today}&group_by=project_id"
    owner = f"&organization={scope.organization_id}" if scope.organization else ""
    return f"{reverse('costs')}?{query}{owner}"


def _traffic_cards(scope: OverviewScope) -> list[dict[str, str]]:
    if not scope.may("inference.view_activity"):
        return []
    seen = traffic.traffic(scope.first_day, scope.today, scope.organization_id)
    return [
        _card(
            f"Requests in {DAYS} days",
            f"{seen.requests:,}",
            f"{seen.requests_today:,} today",
            _requests_url(scope),
        ),
        _card(
            "Error rate",
            _percent(seen.failed, seen.requests),
            f"5xx; {_percent(seen.refused, seen.requests)} were refused (4xx)" if seen.requests else "",
            _requests_url(scope, status="failed"),
        ),
        _card(
            "Time to first token",
            _duration(seen.first_token_ms(0.5)),
            f"estimated median; 95 % within about {_duration(seen.first_token_ms(0.95))}"
            if any(seen.first_tokens)
            else "",
            _requests_url(scope, status="ok"),
        ),
    ]


def _requests_url(scope: OverviewScope, **wanted: str) -> str:
    """The address of the requests that a card has counted."""
    query = {**wanted, "when": f"{DAYS}d"}
    if scope.organization:
        query["organization__id__exact"] = str(scope.organization_id)
    return f"{reverse('admin:inference_activity_changelist')}?{urlencode(query)}"


def _percent(part: int, whole: int) -> str:
    if not whole:
        return "–"  # noqa: RUF001 - nothing to show
    share = 100 * part / whole
    return f"{share:.2f} %" if 0 < share < 1 else f"{share:.1f} %"


def _duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"  # noqa: RUF001
    if milliseconds == float("inf"):
        return "over 5 s"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


# --- blocks ------------------------------------------------------------------------------------------


def _chart(scope: OverviewScope, spent: list[ProjectDay] | None) -> dict[str, Any] | None:
    if spent is None:
        return None
    top = chart.top_projects(spent)
    if not top:
        return {}
    found = Project.objects.select_related("organization").in_bulk(top)
    labels = {pk: _label(scope, found[pk]) if pk in found else str(pk) for pk in top}
    days = [scope.first_day + timedelta(days=number) for number in range(DAYS)]
    return chart.chart(chart.series(spent, days, labels), days)


def _label(scope: OverviewScope, project: Project) -> str:
    return project.name if scope.organization else f"{project.organization} / {project}"


def _top_keys(scope: OverviewScope) -> list[dict[str, Any]] | None:
    if not (scope.may("billing.view_costline") and scope.may("organization.view_projectkey")):
        return None
    spent = spending.spent_by_key(scope.first_day, scope.organization_id)
    top = sorted((pk for pk in spent if spent[pk]), key=lambda pk: (-spent[pk], str(pk)))[:TOP_KEYS]
    found = ProjectKey.objects.select_related("project__organization").in_bulk(top)
    dearest = spent[top[0]] if top else 0
    return [
        {
            "name": found[pk].name,
            "redacted": found[pk].redacted_value,
            "project": _label(scope, found[pk].project),
            "amount": short_usd(spent[pk]),
            "exact": f"{usd(spent[pk])} USD",
            "percent": 100 * spent[pk] // dearest,
            "url": reverse("admin:organization_projectkey_change", args=[pk]),
        }
        for pk in top
        if pk in found
    ]


def _policies(scope: OverviewScope) -> list[dict[str, Any]] | None:
    if not scope.may("policies.view_policy"):
        return None
    found = traffic.policy_matches(scope.first_day, scope.week_day, scope.organization_id)
    return [
        {
            **each,
            **{name: f"{each[name]:,}" for name in ("week", "month", "judged")},
            "url": reverse("admin:policies_policy_change", args=[each["policy_id"]]),
        }
        for each in found
    ]


def _failures(scope: OverviewScope) -> list[dict[str, Any]] | None:
    if not scope.may("inference.view_activity"):
        return None
    return [
        {
            "when": timestamp(row.ended_at),
            "url": reverse("admin:inference_activity_change", args=[row.pk]),
            "status": row.status,
            "is_ours": row.status >= 500,
            "code": row.code,
            "model": row.model,
            "project": _label(scope, row.project),
        }
        for row in traffic.latest_failures(scope.organization_id)
    ]


def _unsettled(scope: OverviewScope, credits: list[Credit] | None) -> dict[str, Any] | None:
    if not scope.may("billing.view_reservation"):
        return None
    found = spending.unsettled(scope.organization_id)
    held = None if credits is None else sum(credit.held_nanousd for credit in credits)
    return {
        "held": found.held,
        "unknown": found.unknown,
        "unknown_minutes": settings.GATEWAY_UNKNOWN_MINUTES,
        "oldest_unknown": relative(found.oldest_unknown_at) if found.oldest_unknown_at else "",
        "held_usd": None if held is None else short_usd(held),
        "url": reverse("admin:billing_reservation_changelist"),
    }
