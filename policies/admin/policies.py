"""The console's pages for policies, which call the same services as the API."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import VERTICAL
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway_site.console.kit.model_admin import (
    ActionForm,
    AutocompleteFilter,
    ModelAdmin,
    Panel,
    RadioSelect,
    Selection,
    confirmed_action,
    display,
    render_page,
)
from gateway_site.console.kit.timestamps import timestamp
from organization.audit.trail import Actor
from policies import services, trial
from policies.admin import evidence
from policies.admin.terms import MATCH_DAYS, facts_of_pause, facts_of_publish, matches_of, panels_of
from policies.models import IN_FORCE, MAX_PROJECTS, MAX_THRESHOLD, MIN_THRESHOLD, Policy, PolicyState
from policies.verdicts import records

STATE_COLOURS = {"draft": "info", "monitoring": "warning", "enforcing": "success", "paused": "danger"}
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
        """No validators are run: those of the parent are for text."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(list(initial or []) != self.to_python(data))


class PolicyForm(forms.ModelForm):
    """The draft, with the revision that the person has seen."""

    seen_revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Policy
        fields = ["organization", *DRAFT_FIELDS]
        labels = {"match_threshold_basis_points": "Matches from (basis points)"}

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


class PublishForm(ActionForm):
    """In which mode, and from which revision."""

    mode = forms.ChoiceField(
        required=False,
        widget=RadioSelect(radio_style=VERTICAL),
        choices=[
            ("", "As the draft says"),
            ("monitoring", "Monitoring: record what matches, refuse nothing"),
            ("enforcing", "Enforcing: refuse what matches, and what cannot be judged"),
        ],
    )
    seen_revision = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen_revision"].initial = self.rows[0].revision


@admin.register(Policy)
class PolicyAdmin(ModelAdmin):
    about = "A policy is a yes-or-no question that a judge answers about requests or answers of customers."
    first_step = "Add one, try it on some text, then publish it in monitoring mode to see what it matches."
    form = PolicyForm
    list_display = [
        "title",
        "current_state",
        "published_mode",
        "direction",
        "scope",
        "revision",
        "has_changes",
        "matches",
    ]
    list_filter = ["state", "direction", "scope", ("organization", AutocompleteFilter)]
    list_select_related = ["organization", "current_version"]
    search_fields = ["name", "=id", "rule"]
    ordering = ["name"]
    autocomplete_fields = ["organization"]
    readonly_fields = ["identifier", "current_state", "revision", "created", "updated"]
    actions = ["publish", "pause", "resume"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        found: QuerySet[Policy] = super().get_queryset(request)
        return found.select_related("organization", "current_version")

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        counts = matches_of(rows)
        for row in rows:
            row.match_counts = counts.get(row.pk, (0, 0))

    def links_of(self, request: HttpRequest, row: Policy) -> list[tuple[str, str, str]]:
        return [("science", "Try it", reverse("admin:policies_policy_try", args=[row.pk]))]

    def panels_of(self, request: HttpRequest, row: Policy) -> list[Panel]:
        return [*panels_of(row), *super().panels_of(request, row)]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        editable = ["organization", *DRAFT_FIELDS, "seen_revision"]
        if obj is None:
            return editable
        if self.has_change_permission(request, obj):
            return [*editable, *self.readonly_fields]
        # Ids are for writing; who may only look is shown names.
        seen = ["projects" if name == "project_ids" else name for name in editable[:-1]]
        return [*seen, *self.readonly_fields]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # Its id is in other systems by then, under this organization.
        return self.readonly_fields if obj is None else ["organization", "projects", *self.readonly_fields]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "project_ids":
            return ProjectIds(
                label="Projects",
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

    @display(description="Policy", ordering="name")
    def title(self, policy: Policy) -> SafeString:
        return format_html('{}<span class="under">{}</span>', policy.name, policy.organization)

    @display(description="PolicyState", label=STATE_COLOURS, ordering="state")
    def current_state(self, policy: Policy) -> str:
        return policy.state

    @display(description="Projects")
    def projects(self, policy: Policy) -> SafeString | str:
        return evidence.projects_named_by(policy)

    @display(description="Published")
    def published_mode(self, policy: Policy) -> str:
        version = policy.current_version
        return f"v{version.version}, {version.mode}" if version else "never"

    @display(description="Unpublished changes", label={"yes": "warning", "no": ""})
    def has_changes(self, policy: Policy) -> str:
        return "yes" if policy.has_unpublished_changes else "no"

    @display(description=f"Matches today / {MATCH_DAYS} d")
    def matches(self, policy: Any) -> str:
        return "{} / {}".format(*policy.match_counts)

    @display(description="Created", ordering="created_at")
    def created(self, policy: Policy) -> SafeString:
        return timestamp(policy.created_at)

    @display(description="Changed", ordering="updated_at")
    def updated(self, policy: Policy) -> SafeString:
        return timestamp(policy.updated_at)

    # --- actions -------------------------------------------------------------------------------------

    @confirmed_action(
        label="Publish",
        consequence="The draft goes into force at once, as a new version if it changed. An enforcing policy "
        "refuses requests from this moment on.",
        done="published",
        icon="publish",
        confirmation_rows=facts_of_publish,
        applies=lambda policy: policy.has_unpublished_changes,
        form=PublishForm,
        # What is published is what was seen, and that is one draft.
        selection=Selection.ONE,
    )
    def publish(self, request: HttpRequest, policy: Policy, given: dict[str, Any]) -> str:
        published = services.publish_policy(
            policy=policy,
            mode=given["mode"] or None,
            revision=given["seen_revision"],
            actor=Actor.staff(request.user),
        )
        return f"published, {published.state}"

    @confirmed_action(
        label="Pause",
        consequence="A paused policy applies to no request until it is resumed.",
        done="paused",
        icon="pause",
        confirmation_rows=facts_of_pause,
        applies=lambda policy: policy.state in IN_FORCE,
    )
    def pause(self, request: HttpRequest, policy: Policy) -> None:
        services.pause_policy(policy=policy, actor=Actor.staff(request.user))

    @confirmed_action(
        label="Resume",
        consequence="The policy applies again at once, as it was published. An enforcing one refuses "
        "requests from this moment on.",
        done="resumed",
        icon="play_arrow",
        confirmation_rows=facts_of_pause,
        applies=lambda policy: policy.state == PolicyState.PAUSED,
    )
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
            "policy": policy,
            "text": text,
            "trial": outcome,
            "may_try": may_try,
            "evidence": records.evidence_of(policy),
        }
        return render_page(self, request, "admin/policies/try.html", "Try it", context, policy)
