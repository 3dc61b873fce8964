"""The console's read-only pages of published versions and of verdicts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway_site.api.identifiers import uuid_or_none
from gateway_site.console.kit.model_admin import ReadOnlyAdmin, ShortPaginator, address_of, display
from gateway_site.console.kit.timestamps import timestamp
from organization.models import Project
from policies.models import Policy, PolicyScope, PolicyVersion, Verdict

OUTCOME_COLOURS = {"match": "danger", "no match": "success", "inconclusive": "warning"}


def basis_points(number: int) -> str:
    return f"{number / 100:.2f} %"


def projects_named_by(terms: Policy | PolicyVersion) -> SafeString | str:
    """The projects of a draft or a version, with their names."""
    if terms.scope != PolicyScope.PROJECTS:
        return "none named"
    known = Project.objects.in_bulk(terms.project_ids)
    named = [(address_of(each), each.name) for each in known.values()]
    return format_html_join("", '<div><a class="text-link" href="{}">{}</a></div>', named)


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    """A published version of a policy, as it was."""

    about = "What was published of each policy, as it was. A version never changes."
    first_step = "Open a policy and choose Publish."
    first_command = "python manage.py publish_policy POLICY_ID"
    list_display = ["title", "version", "mode", "direction", "scope", "published"]
    list_select_related = ["policy__organization"]
    list_filter = ["mode", "direction", "scope"]
    search_fields = ["policy__name", "=policy__id", "=id"]
    ordering = ["-published_at"]
    fields = [
        "title",
        "version",
        "rule",
        "direction",
        "mode",
        "scope",
        "projects",
        "threshold",
        "published",
    ]
    readonly_fields = fields

    @display(description="Policy", ordering="policy__name")
    def title(self, version: PolicyVersion) -> SafeString:
        return format_html('{}<span class="under">{}</span>', version.policy, version.policy.organization)

    @display(description="Projects")
    def projects(self, version: PolicyVersion) -> SafeString | str:
        return projects_named_by(version)

    @display(description="Matches from")
    def threshold(self, version: PolicyVersion) -> str:
        return basis_points(version.match_threshold_basis_points)

    @display(description="Published", ordering="published_at")
    def published(self, version: PolicyVersion) -> SafeString:
        return timestamp(version.published_at)


@admin.register(Verdict)
class VerdictAdmin(ReadOnlyAdmin):
    """The verdicts of judges. The judged texts are not kept."""

    about = "What judges said about requests and answers, without their texts."
    first_step = "Publish a policy: the next request that it covers makes the first verdict."
    list_display = [
        "when",
        "title",
        "direction",
        "mode",
        "shown_outcome",
        "p_yes",
        "threshold",
        "took",
        "judge",
        "asked_of",
    ]
    list_select_related = ["version__policy"]
    list_filter = ["outcome", "mode", "direction"]
    search_fields = ["=request_id", "=version__id", "=version__policy__id"]
    search_help_text = "An id, whole: of a request, a policy or a version."
    ordering = ["-occurred_at"]
    paginator = ShortPaginator
    fields = [
        "when",
        "title",
        "project",
        "direction",
        "mode",
        "shown_outcome",
        "p_yes",
        "threshold",
        "reason",
        "judge",
        "judgements",
        "took",
        "asked_of",
    ]
    readonly_fields = fields

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by the indexes that there are: as text, an id would be compared with every row."""
        if not search_term:
            return queryset, False
        identifier = uuid_or_none(search_term.strip())
        if identifier is None:
            return queryset.none(), False
        versions = PolicyVersion.objects.filter(Q(pk=identifier) | Q(policy=identifier))
        known = list(versions.values_list("pk", flat=True))
        meant = Q(version__in=known) if known else Q(request_id=identifier)
        return queryset.filter(meant), False

    @display(description="Time", ordering="occurred_at")
    def when(self, verdict: Verdict) -> SafeString:
        return timestamp(verdict.occurred_at)

    @display(description="Policy")
    def title(self, verdict: Verdict) -> SafeString:
        policy = verdict.version.policy
        return format_html(
            '<a class="text-link" href="{}">{}</a> v{}', address_of(policy), policy, verdict.version.version
        )

    @display(description="Outcome", label=OUTCOME_COLOURS)
    def shown_outcome(self, verdict: Verdict) -> str:
        return verdict.outcome.replace("_", " ")

    @display(description="P(yes)")
    def p_yes(self, verdict: Verdict) -> str:
        return "" if verdict.score is None else f"{100 * verdict.score:.2f} %"

    @display(description="Matches from")
    def threshold(self, verdict: Verdict) -> str:
        return basis_points(verdict.threshold_basis_points)

    @display(description="Took")
    def took(self, verdict: Verdict) -> str:
        return f"{verdict.latency_ms} ms"

    @display(description="Request")
    def asked_of(self, verdict: Verdict) -> SafeString:
        return format_html(
            '<a class="text-link mono" href="{}" title="{}">{}</a>',
            reverse("admin:inference_activity_change", args=[verdict.request_id]),
            verdict.request_id,
            str(verdict.request_id)[:8],
        )
