"""The console's pages for backends, models and what became of requests."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest

from gateway_site.api.console import ModelAdmin, ReadOnlyAdmin, ShortPaginator, TabularInline, display
from inference import services
from inference.admin_forms import BackendForm, DeploymentForm, ModelForm
from inference.catalog import price_of
from inference.models import Activity, Backend, CatalogModel, Deployment, PassedCheck
from inference.probes import probe
from organization.audit import Actor


@admin.register(Backend)
class BackendAdmin(ModelAdmin):
    """Where models are. The credential goes in and never comes out."""

    form = BackendForm
    list_display = ["name", "kind", "base_url", "state", "has_credential", "probed_at", "probe_problem"]
    list_filter = ["kind", "is_enabled"]
    search_fields = ["name", "base_url"]
    readonly_fields = ["has_credential", "created_at", "probed_at", "probe_problem"]
    actions = ["ask"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fields = ["name", "kind", "base_url", "options", "credential"]
        return [*fields, "removes_credential", "is_enabled", *self.readonly_fields] if obj else fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # The name is how commands and activity records know it.
        return ["name", *self.readonly_fields] if obj else list(self.readonly_fields)

    def save_model(self, request: HttpRequest, obj: Backend, form: Any, change: bool) -> None:
        given = form.cleaned_data
        saved, _ = services.save_backend(
            name=obj.name,
            kind=given["kind"],
            base_url=given["base_url"],
            credential="" if given.get("removes_credential") else given["credential"] or None,
            options=given["options"] or {},
            is_enabled=given.get("is_enabled"),
            actor=Actor.staff(request.user),
        )
        obj.pk = saved.pk

    @display(description="API key", boolean=True)
    def has_credential(self, backend: Backend) -> bool:
        return backend.credential_ciphertext is not None

    @display(description="State", label={"on": "success", "off": "danger"})
    def state(self, backend: Backend) -> str:
        return "on" if backend.is_enabled else "off"

    @admin.action(description="Ask whether they are there", permissions=["operate"])
    def ask(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        for finding in probe(queryset):
            if finding.problem:
                self.message_user(request, f"{finding.backend}: {finding.problem}", messages.ERROR)
            else:
                self.message_user(request, f"{finding.backend}: ready.", messages.SUCCESS)


class DeploymentInline(TabularInline):
    model = Deployment
    form = DeploymentForm
    can_delete = True
    fields = ["backend", "upstream_id", "weight", "is_enabled"]


@admin.register(CatalogModel)
class CatalogModelAdmin(ModelAdmin):
    """What customers can ask for, what it costs, and where it is."""

    form = ModelForm
    inlines = [DeploymentInline]
    list_display = ["id", "state", "places", "context_length", "max_output_length", "owned_by"]
    list_filter = ["is_enabled", "deployments__backend"]
    search_fields = ["id", "display_name"]
    fieldsets = [
        (None, {"fields": ["id", "display_name", "owned_by", "is_enabled"]}),
        ("USD per token, per image, per request", {"fields": list(services.PRICES)}),
        ("Limits", {"fields": ["context_length", "max_output_length", "tokenizer", "quantization"]}),
        (
            "What it takes and can",
            {
                "fields": [
                    "input_modalities",
                    "output_modalities",
                    "supported_sampling_parameters",
                    "supported_features",
                    "required_checks",
                ]
            },
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[CatalogModel]:
        live = Q(deployments__is_enabled=True, deployments__backend__is_enabled=True)
        return CatalogModel.objects.annotate(live_count=Count("deployments", filter=live))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["id"] if obj else []

    def save_model(self, request: HttpRequest, obj: CatalogModel, form: Any, change: bool) -> None:
        saved, _ = services.save_model(
            model_id=obj.pk, changes=form.changed_columns, actor=Actor.staff(request.user)
        )
        obj.pk = saved.pk

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        actor = Actor.staff(request.user)
        changed = formset.save(commit=False)
        for deployment in formset.deleted_objects:
            services.remove_deployment(deployment=deployment, actor=actor)
        for deployment in changed:
            services.save_deployment(
                model=form.instance,
                backend=deployment.backend,
                upstream_id=deployment.upstream_id,
                weight=deployment.weight,
                is_enabled=deployment.is_enabled,
                actor=actor,
            )

    @display(description="Places", ordering="live_count")
    def places(self, model: Any) -> int:
        return int(model.live_count)

    @display(
        description="State",
        label={"served": "success", "no price": "danger", "no place": "warning", "off": "danger"},
    )
    def state(self, model: Any) -> str:
        if not model.is_enabled:
            return "off"
        if price_of(model) is None:
            return "no price"
        return "served" if model.live_count else "no place"


@admin.register(PassedCheck)
class PassedCheckAdmin(ModelAdmin):
    """Which organizations met the conditions of models that have some."""

    list_display = ["check_name", "organization", "created_at"]
    list_filter = ["check_name"]
    list_select_related = ["organization"]
    search_fields = ["check_name", "organization__name"]
    autocomplete_fields = ["organization"]
    readonly_fields = ["created_at"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("inference.delete_passedcheck")

    def save_model(self, request: HttpRequest, obj: PassedCheck, form: Any, change: bool) -> None:
        passed = services.pass_check(
            organization=obj.organization, check_name=obj.check_name, actor=Actor.staff(request.user)
        )
        obj.pk = passed.pk

    def delete_model(self, request: HttpRequest, obj: PassedCheck) -> None:
        services.withdraw_check(passed=obj, actor=Actor.staff(request.user))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[PassedCheck]) -> None:
        for passed in queryset:
            self.delete_model(request, passed)


@admin.register(Activity)
class ActivityAdmin(ReadOnlyAdmin):
    """What became of each request."""

    list_display = ["ended_at", "organization", "model", "deployment", "status", "code", "total_ms"]
    list_filter = ["status", "endpoint"]
    list_select_related = ["organization"]
    search_fields = ["id__exact"]
    ordering = ["-ended_at"]
    paginator = ShortPaginator
