"""What the console tells of policies: what publishing would change, whom it covers, what it matched."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Q, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway_site.console.kit.model_admin import PageExtension, Panel, address_of, extend_pages
from gateway_site.console.kit.timestamps import timestamp
from organization.models import Project
from policies.enforcement.attachment import attached, effective_policies
from policies.models import IN_FORCE, DailyVerdicts, Policy, PolicyScope, PolicyVersion

LATEST_VERSIONS = 20
MATCH_DAYS = 7
TERMS = ("rule", "direction", "mode", "scope", "projects", "threshold")


def terms_of(terms: Policy | PolicyVersion) -> dict[str, str]:
    """A draft or a version as words, term by term."""
    threshold = terms.match_threshold_basis_points
    if isinstance(terms, Policy):
        threshold = terms.threshold_if_published
    words = [terms.rule, terms.direction, terms.mode, terms.scope]
    return dict(zip(TERMS, [*words, ", ".join(terms.project_ids) or "none", str(threshold)], strict=True))


def differences(policy: Policy) -> list[tuple[str, str, str]]:
    """What publishing would change: the term, as it is published, as it is drafted."""
    draft = terms_of(policy)
    published = terms_of(policy.current_version) if policy.current_version else {}
    return [
        (name, published.get(name, ""), value)
        for name, value in draft.items()
        if published.get(name) != value
    ]


def coverage(policy: Policy) -> str:
    """Whom the draft would cover."""
    active = Project.objects.filter(organization=policy.organization_id, archived_at=None)
    match policy.scope:
        case PolicyScope.ORGANIZATION:
            return f"all projects of {policy.organization}: {active.count()} active"
        case PolicyScope.PROJECTS:
            return f"{active.filter(pk__in=policy.project_ids).count()} active projects"
        case _:
            return "only requests that name it"


def facts_of_publish(policy: Policy, given: dict[str, Any]) -> list[tuple[str, Any]]:
    changes = differences(policy)
    version = policy.current_version
    facts: list[tuple[str, Any]] = [
        ("State now", f"{policy.state}, version {version.version}" if version else "draft, never published"),
        ("The draft's mode", policy.mode),
        ("Covers", coverage(policy)),
    ]
    if not changes:
        return [*facts, ("Changes", "none: the draft is what is published")]
    return facts + [
        (name.capitalize(), _changed(before, after) if version else after) for name, before, after in changes
    ]


def facts_of_pause(policy: Policy, given: dict[str, Any]) -> list[tuple[str, Any]]:
    version = policy.current_version
    today, week = matches_of([policy]).get(policy.pk, (0, 0))
    return [
        ("State now", policy.state),
        ("Published", f"version {version.version}, {version.mode}" if version else "never"),
        ("Matches", f"{today} today, {week} in {MATCH_DAYS} days"),
    ]


def _changed(before: str, after: str) -> SafeString:
    return format_html(
        '<span class="change-old">{}</span> → <span class="change-new">{}</span>', before, after
    )


def matches_of(policies: Iterable[Policy]) -> dict[Any, tuple[int, int]]:
    """How often each policy matched today and in the last days (UTC), all of them in one query."""
    today = timezone.now().date()
    first = today - timedelta(days=MATCH_DAYS - 1)
    rows = (
        DailyVerdicts.objects.filter(day__gte=first, version__policy__in=[policy.pk for policy in policies])
        .values("version__policy")
        .annotate(today=Sum("matches", filter=Q(day=today)), week=Sum("matches"))
        .values_list("version__policy", "today", "week")
    )
    return {policy: (int(now or 0), int(week or 0)) for policy, now, week in rows}


# --- below a policy's fields --------------------------------------------------------------------------


def panels_of(policy: Policy) -> list[Panel]:
    return [_difference_panel(policy), _verdict_panel(policy), _version_panel(policy)]


def _difference_panel(policy: Policy) -> Panel:
    published = bool(policy.current_version)
    return Panel(
        title="What publishing would change",
        headings=["Term", "Published", "Draft"],
        rows=[
            [name, before or "nothing", format_html('<span class="change-new">{}</span>', after)]
            for name, before, after in differences(policy)
        ],
        empty="Nothing: the draft is what is published." if published else "",
    )


def _verdict_panel(policy: Policy) -> Panel:
    today = timezone.now().date()
    first = today - timedelta(days=MATCH_DAYS - 1)
    days = (
        DailyVerdicts.objects.filter(day__gte=first, version__policy=policy)
        .values("day")
        .annotate(yes=Sum("matches"), no=Sum("no_matches"), unclear=Sum("inconclusive"))
        .order_by("-day")
        .values_list("day", "yes", "no", "unclear")
    )
    return Panel(
        title=f"Verdicts in {MATCH_DAYS} days (UTC)",
        headings=["Day", "Matches", "No match", "Inconclusive"],
        rows=[[f"{day:%Y-%m-%d}", *counts] for day, *counts in days],
        empty="None. A policy in force is asked about every request that it covers.",
        link=(f"{reverse('admin:policies_verdict_changelist')}?q={policy.pk}", "All verdicts"),
    )


def _version_panel(policy: Policy) -> Panel:
    versions = policy.versions.order_by("-version")[:LATEST_VERSIONS]
    return Panel(
        title="Versions",
        headings=["Version", "Published", "Mode", "Direction", "PolicyScope", "Question"],
        rows=[
            [
                format_html('<a class="text-link" href="{}">{}</a>', address_of(version), version.version),
                timestamp(version.published_at),
                version.mode,
                version.direction,
                version.scope,
                version.rule[:200],
            ]
            for version in versions
        ],
        empty="None: it was never published.",
        link=(f"{reverse('admin:policies_policyversion_changelist')}?q={policy.pk}", "All versions"),
    )


# --- on the pages of projects -------------------------------------------------------------------------


def project_cells(rows: list[Any]) -> dict[Any, list[Any]]:
    owners = {row.organization_id for row in rows}
    in_force = Policy.objects.filter(organization__in=owners, state__in=IN_FORCE)
    versions = [
        (policy.organization_id, attached(policy)) for policy in in_force.select_related("current_version")
    ]
    cells = {}
    for row in rows:
        count = sum(
            owner == row.organization_id and version.is_automatic_for(row.pk) for owner, version in versions
        )
        address = f"{address_of(row)}#policies"
        cells[row.pk] = [format_html('<a class="text-link" href="{}">{}</a>', address, count)]
    return cells


def project_panels(request: HttpRequest, project: Project) -> list[Panel]:
    return [
        Panel(
            title="Policies that apply to every request",
            headings=["Policy", "Mode", "Direction", "PolicyScope", "Question"],
            rows=[
                [
                    format_html('<a class="text-link" href="{}">{}</a>', address_of(policy), policy.name),
                    version.mode,
                    version.direction,
                    version.scope,
                    version.rule[:200],
                ]
                for policy in effective_policies(project)
                for version in [attached(policy)]
            ],
            empty="None.",
            anchor="policies",
        )
    ]


extend_pages(
    Project,
    PageExtension(
        permission="policies.view_policy", columns=["Policies"], cells=project_cells, panels=project_panels
    ),
)
