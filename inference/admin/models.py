"""The console's page for the catalog: models, their prices and their deployments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.money import price_text
from billing.prices.parts import PARTS
from gateway_site.console.kit.model_admin import ModelAdmin, TabularInline, confirmed_action, display
from gateway_site.console.kit.timestamps import timestamp
from inference.admin.forms import DeploymentForm, ModelForm
from inference.catalog import services
from inference.catalog.vocabularies import vocabulary_text
from inference.models import CatalogModel, DailyActivity, Deployment
from organization.audit.trail import Actor

MILLION = 1_000_000
PRICES_TITLE = "USD per token, per image, per request"
LIMITS_TITLE = "Limits"
LIMITS = ["context_length", "max_output_length", "tokenizer", "is_tokenizer_exact", "quantization"]
CAPABILITIES_TITLE = "Capabilities"
CAPABILITIES = [
    "input_modalities",
    "output_modalities",
    "supported_sampling_parameters",
    "supported_features",
    "required_checks",
]
READINESS = {
    "served": "success",
    "no price": "danger",
    "no deployment": "warning",
    "backend failing": "danger",
    "disabled": "",
}


def live_deployments(model: Any) -> list[Deployment]:
    """The model's enabled deployments on enabled backends, from what was fetched for the whole page."""
    return [each for each in model.deployments.all() if each.is_enabled and each.backend.is_enabled]


def readiness(model: CatalogModel) -> str:
    """Whether a request for the model would be answered, as a short label."""
    if not model.is_enabled:
        return "disabled"
    if model.price_version is None:
        return "no price"
    deployments = live_deployments(model)
    if not deployments:
        return "no deployment"
    return "backend failing" if all(each.backend.probe_problem for each in deployments) else "served"


def price_cell(model: CatalogModel) -> SafeString:
    """USD for a million tokens, as people compare them, above the exact price of one."""
    if model.price_version is None:
        return format_html("<span>{}</span>", "not set")
    rates = model.price_version.card.rates
    prompt, completion = rates["prompt"].picousd, rates["completion"].picousd
    return format_html(
        'in ${} · out ${}<span class="under mono">{} / {}</span>',
        price_text(prompt * MILLION),
        price_text(completion * MILLION),
        price_text(prompt),
        price_text(completion),
    )


def model_facts(model: CatalogModel, given: dict[str, Any]) -> list[tuple[str, Any]]:
    since = timezone.now().date() - timedelta(days=6)
    totals = DailyActivity.objects.filter(day__gte=since, model=model.pk).aggregate(number=Sum("requests"))
    deployments = [f"{each.upstream_id} on {each.backend}" for each in live_deployments(model)]
    return [
        ("Readiness now", readiness(model)),
        ("USD per million tokens", price_cell(model)),
        ("Deployments", ", ".join(deployments) or "none"),
        ("Requests in 7 days", totals["number"] or 0),
    ]


class DeploymentInline(TabularInline):
    """The table of a model's deployments, in the form of the model."""

    model = Deployment
    form = DeploymentForm
    can_delete = True
    fields = ["backend", "upstream_id", "weight", "is_enabled"]
    autocomplete_fields = ["backend"]


@admin.register(CatalogModel)
class CatalogModelAdmin(ModelAdmin):
    """The page of models: what customers can use, at which price, on which backends."""

    about = "The models that customers can ask for, what they cost, and which backends answer for them."
    first_step = "Add a backend and import its models there, or add one by hand or with this command."
    first_command = "python manage.py add_model ID --backend NAME --prompt-price USD --completion-price USD"
    form = ModelForm
    inlines = [DeploymentInline]
    list_display = [
        "title",
        "state",
        "price",
        "deployed_on",
        "context_length",
        "max_output_length",
        "vocabulary",
        "last_probe",
    ]
    list_filter = ["is_enabled", "deployments__backend"]
    search_fields = ["id", "display_name", "owned_by"]
    ordering = ["id"]
    actions = ["enable", "disable"]
    fieldsets = [
        (None, {"fields": ["id", "display_name", "owned_by", "is_enabled", "seen"]}),
        (PRICES_TITLE, {"fields": [part.name for part in PARTS]}),
        (LIMITS_TITLE, {"fields": LIMITS}),
        (
            CAPABILITIES_TITLE,
            {"fields": CAPABILITIES},
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[CatalogModel]:
        found: QuerySet[CatalogModel] = super().get_queryset(request)
        deployments = Deployment.objects.select_related("backend").order_by("pk")
        return found.prefetch_related(Prefetch("deployments", deployments))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        # The form's own fields are for writing; who may only look is shown the same in words.
        in_words = {
            PRICES_TITLE: ["price", "all_prices"],
            LIMITS_TITLE: ["context_length", "max_output_length", "vocabulary", "quantization"],
            CAPABILITIES_TITLE: ["capabilities"],
        }
        return [
            (title, {"fields": in_words.get(title) or [name for name in options["fields"] if name != "seen"]})
            for title, options in found
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["id", "price", "all_prices", "vocabulary", "capabilities"] if obj else []

    def save_model(self, request: HttpRequest, obj: CatalogModel, form: Any, change: bool) -> None:
        # The deployments are saved after the model; their names tell its vocabulary already now.
        names = [name for name in request.POST if name.endswith("-upstream_id")]
        saved, _ = services.save_model(
            model_id=obj.pk,
            changes=form.changed_columns,
            prices=form.changed_prices,
            actor=Actor.staff(request.user),
            upstream_ids=[text for name in names if (text := request.POST.get(name))],
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

    # --- columns -------------------------------------------------------------------------------------

    @display(description="Model", ordering="id")
    def title(self, model: CatalogModel) -> SafeString:
        return format_html('{}<span class="under">{}</span>', model.pk, model.display_name or model.owned_by)

    @display(description="Readiness", label=READINESS)
    def state(self, model: Any) -> str:
        return readiness(model)

    @display(description="USD per million tokens")
    def price(self, model: CatalogModel) -> SafeString:
        return price_cell(model)

    @display(description="USD each")
    def all_prices(self, model: CatalogModel) -> SafeString:
        rates = model.price_version.card.rates if model.price_version else {}
        shown = [
            (part.item, price_text(rates[part.name].picousd) if part.name in rates else "not set")
            for part in PARTS
        ]
        return format_html_join("", "<div>{}: {}</div>", shown)

    @display(description="Tokenizer", ordering="tokenizer")
    def vocabulary(self, model: CatalogModel) -> str:
        return vocabulary_text(model.tokenizer, model.is_tokenizer_exact)

    @display(description="Capabilities")
    def capabilities(self, model: CatalogModel) -> SafeString:
        shown = [(name.replace("_", " "), ", ".join(getattr(model, name)) or "none") for name in CAPABILITIES]
        return format_html_join("", "<div>{}: {}</div>", shown)

    @display(description="Backends")
    def deployed_on(self, model: CatalogModel) -> str:
        return ", ".join(each.backend.name for each in live_deployments(model)) or "none"

    @display(description="Last probe")
    def last_probe(self, model: CatalogModel) -> SafeString:
        backends = [each.backend for each in live_deployments(model)]
        times = [each.probed_at for each in backends if each.probed_at]
        problem = next((each.probe_problem for each in backends if each.probe_problem), "")
        return format_html(
            '{}<span class="under">{}</span>', timestamp(max(times) if times else None), problem
        )

    # --- actions -------------------------------------------------------------------------------------

    @confirmed_action(
        label="Enable",
        consequence="Customers see the model within seconds, and can use it where it has a price and a "
        "deployment.",
        done="enabled",
        icon="toggle_on",
        confirmation_rows=model_facts,
        applies=lambda model: not model.is_enabled,
    )
    def enable(self, request: HttpRequest, model: CatalogModel) -> None:
        services.save_model(model_id=model.pk, changes={"is_enabled": True}, actor=Actor.staff(request.user))

    @confirmed_action(
        label="Disable",
        consequence="Customers no longer see the model, and new requests for it are answered with 404. "
        "Running ones end as they would.",
        done="disabled",
        icon="toggle_off",
        confirmation_rows=model_facts,
        applies=lambda model: model.is_enabled,
        is_dangerous=True,
    )
    def disable(self, request: HttpRequest, model: CatalogModel) -> None:
        services.save_model(model_id=model.pk, changes={"is_enabled": False}, actor=Actor.staff(request.user))
