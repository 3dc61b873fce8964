"""The console's pages for policies: doors to the same services as the API, and to evidence."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from gateway_site.api.console import ModelAdmin, ReadOnlyAdmin, ShortPaginator, confirmed, display
from organization.audit import Actor
from policies import services, trial, verdicts
from policies.models import MAX_PROJECTS, MAX_THRESHOLD, MIN_THRESHOLD, Policy, PolicyVersion, Verdict

STATE_COLOURS = {"draft": "info", "monitoring": "warning", "enforcing": "success", "paused": "danger"}
OUTCOME_COLOURS = {"match": "danger", "no_match": "success", "inconclusive": "warning"}
DRAFT_FIELDS = [
    "name",
    "description",
    "rule",
    "direction",
    "mode",
    "scope",
    "project_ids",
    "match_threshold_basis_points",
]


class ProjectIds(forms.CharField):
    """Ids of projects, one a line. Whether they are the organization's is for the service to say."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, list) else str(value or "").split()

    def validate(self, value: Any) -> None:
        if len(value) > MAX_PROJECTS:
            raise forms.ValidationError(f"There can be {MAX_PROJECTS} projects at most.")

    def run_validators(self, value: Any) -> None:
        """They are for text."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(list(initial or []) != self.to_python(data))


class PolicyForm(forms.ModelForm):
    """The draft, with the revision that the person has seen."""

    seen_revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Policy
        fields = ["organization", *DRAFT_FIELDS]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["seen_revision"].initial = self.instance.revision

    def clean_rule(self) -> str:
        rule = str(self.cleaned_data["rule"])
        if not rule.endswith("?"):
            raise forms.ValidationError("This must be a question that ends with `?`.")
        return rule

    def clean_match_threshold_basis_points(self) -> int | None:
        threshold: int | None = self.cleaned_data["match_threshold_basis_points"]
        if threshold is not None and not MIN_THRESHOLD <= threshold <= MAX_THRESHOLD:
            raise forms.ValidationError(f"From {MIN_THRESHOLD} to {MAX_THRESHOLD}; empty for the default.")
        return threshold


@admin.register(Policy)
class PolicyAdmin(ModelAdmin):
    form = PolicyForm
    list_display = [
        "name",
        "organization",
        "current_state",
        "in_force",
        "scope",
        "has_news",
        "updated_at",
        "try_it",
    ]
    list_filter = ["state", "organization"]
    list_select_related = ["organization", "current_version"]
    search_fields = ["name", "id", "rule"]
    autocomplete_fields = ["organization"]
    readonly_fields = ["id", "state", "current_version", "created_at", "updated_at", "try_it"]
    actions = ["publish", "pause", "resume"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        editable = ["organization", *DRAFT_FIELDS, "seen_revision"]
        return editable if obj is None else [*editable, *self.readonly_fields]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # Its id is in other systems by then, under this organization.
        return self.readonly_fields if obj is None else ["organization", *self.readonly_fields]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "project_ids":
            return ProjectIds(
                required=False,
                widget=self.formfield_overrides[models.TextField]["widget"],
                help_text="For the scope `projects`: ids, one a line.",
            )
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Policy, form: Any, change: bool) -> None:
        actor = Actor.staff(request.user)
        written = {name: form.cleaned_data[name] for name in DRAFT_FIELDS}
        if not change:
            obj.pk = services.create_policy(organization=obj.organization, actor=actor, **written).pk
            return
        services.edit_policy(
            policy=Policy.objects.select_related("organization").get(pk=obj.pk),
            revision=form.cleaned_data["seen_revision"] or 0,
            changes={name: value for name, value in written.items() if name in form.changed_data},
            actor=actor,
        )

    # --- columns -------------------------------------------------------------------------------------

    @display(description="State", label=STATE_COLOURS, ordering="state")
    def current_state(self, policy: Policy) -> str:
        return policy.state

    @display(description="Version")
    def in_force(self, policy: Policy) -> str:
        return str(policy.current_version.version) if policy.current_version else "-"

    @display(description="Unpublished changes", boolean=True)
    def has_news(self, policy: Policy) -> bool:
        return policy.has_unpublished_changes

    @display(description="Evidence")
    def try_it(self, policy: Policy) -> str:
        address = reverse("admin:policies_policy_try", args=[policy.pk])
        return format_html('<a href="{}" class="underline">Try it</a>', address)

    # --- actions -------------------------------------------------------------------------------------

    @confirmed(
        label="Publish",
        consequence="The drafts of these policies go into force, each in the mode that it says. An enforcing "
        "policy refuses requests from this moment on.",
    )
    def publish(self, request: HttpRequest, policy: Policy) -> None:
        services.publish_policy(policy=policy, actor=Actor.staff(request.user))

    @confirmed(label="Pause", consequence="These policies apply to no request until they are resumed.")
    def pause(self, request: HttpRequest, policy: Policy) -> None:
        services.pause_policy(policy=policy, actor=Actor.staff(request.user))

    @confirmed(label="Resume", consequence="These policies apply again at once, as they were published.")
    def resume(self, request: HttpRequest, policy: Policy) -> None:
        services.resume_policy(policy=policy, actor=Actor.staff(request.user))

    # --- trying --------------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        own = path(
            "<uuid:policy_id>/try/", self.admin_site.admin_view(self.try_view), name="policies_policy_try"
        )
        return [own, *super().get_urls()]

    def try_view(self, request: HttpRequest, policy_id: Any) -> HttpResponse:
        policy = Policy.objects.select_related("organization", "current_version").filter(pk=policy_id).first()
        if policy is None:
            raise Http404
        if not self.has_view_permission(request, policy):
            raise PermissionDenied
        may_try = self.has_operate_permission(request)
        text, outcome = "", None
        if request.method == "POST":
            if not may_try:
                raise PermissionDenied
            text = request.POST.get("text", "")
            if len(text) > trial.MAX_CHARACTERS:
                self.message_user(
                    request, f"At most {trial.MAX_CHARACTERS} characters can be tried.", messages.ERROR
                )
            else:
                outcome = trial.try_draft(policy, text)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Try {policy.name}",
            "opts": self.opts,
            "policy": policy,
            "text": text,
            "trial": outcome,
            "may_try": may_try,
            "evidence": verdicts.evidence_of(policy),
        }
        return TemplateResponse(request, "admin/policies/try.html", context)


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    """What was published, as it was."""

    list_display = ["policy", "version", "mode", "direction", "scope", "published_at"]
    list_select_related = ["policy"]
    list_filter = ["mode", "direction", "scope"]
    search_fields = ["policy__name", "policy__id", "id"]
    ordering = ["-published_at"]


@admin.register(Verdict)
class VerdictAdmin(ReadOnlyAdmin):
    """What judges said. The texts are nowhere."""

    list_display = [
        "occurred_at",
        "policy_version",
        "direction",
        "mode",
        "shown_outcome",
        "score",
        "threshold_basis_points",
        "latency_ms",
        "judge",
        "request_id",
    ]
    list_select_related = ["version__policy"]
    list_filter = ["outcome", "mode", "direction"]
    search_fields = ["=request_id", "=version__id", "=version__policy__id"]
    ordering = ["-occurred_at"]
    paginator = ShortPaginator

    @display(description="Policy")
    def policy_version(self, verdict: Verdict) -> str:
        return str(verdict.version)

    @display(description="Outcome", label=OUTCOME_COLOURS)
    def shown_outcome(self, verdict: Verdict) -> str:
        return verdict.outcome
