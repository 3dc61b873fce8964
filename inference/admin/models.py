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

from billing.admin.price_versions import card_html, price_versions_panel
from billing.models import PriceVersion
from billing.money import per_million
from billing.prices.card import PriceCard
from billing.prices.card_text import COUNTS
from gateway_site.console.kit.model_admin import (
    ModelAdmin,
    Panel,
    TabularInline,
    confirmed_action,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from inference.admin.forms import DeploymentForm, ModelForm
from inference.admin.price_form import COUNT_DEFAULTS, OTHER_PRICES, USUAL_PRICES
from inference.catalog import services
from inference.catalog.vocabularies import vocabulary_text
from inference.models import CatalogModel, DailyActivity, Deployment, read_price_versions
from organization.audit.trail import Actor

PRICES_TITLE = "Prices in USD per million tokens"
OTHER_PRICES_TITLE = "Other prices in USD: caches, reasoning, audio, images, searches, requests, long prompts"
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
    """What a million tokens cost, with the next prices below where some are scheduled."""
    shown = _in_and_out(model.price_version.card) if model.price_version else "not set"
    scheduled: PriceVersion | None = model.__dict__.get("scheduled_version")
    if scheduled is None:
        return format_html("<span>{}</span>", shown)
    later = f"from {scheduled.valid_from:%Y-%m-%d %H:%M} UTC: {_in_and_out(scheduled.card)}"
    return format_html('{}<span class="under">{}</span>', shown, later)


def _in_and_out(card: PriceCard) -> str:
    prompt, completion = card.rates["prompt"], card.rates["completion"]
    tiers = ", tiers" if card.thresholds else ""
    return f"in ${per_million(prompt.picousd)} · out ${per_million(completion.picousd)}{tiers}"


def read_scheduled_versions(models: list[CatalogModel]) -> None:
    """Put on each model the next version of its prices, where one is scheduled."""
    names = [model.pk for model in models]
    later = PriceVersion.objects.filter(model__in=names, valid_from__gt=timezone.now())
    # The soonest is written last; of two with one time, the one that was made last counts.
    found = {each.model: each for each in later.order_by("-valid_from", "created_at")}
    for model in models:
        model.__dict__["scheduled_version"] = found.get(model.pk)


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


def _opened(title: str, options: dict[str, Any], model: CatalogModel | None) -> tuple[str, dict[str, Any]]:
    """A group of fields, which is not collapsed where the model has something in it."""
    version = model.price_version if model is not None else None
    if title != OTHER_PRICES_TITLE or version is None:
        return title, options
    card = version.card
    has_prices = bool(card.thresholds or set(card.rates) - set(USUAL_PRICES))
    is_used = has_prices or any(getattr(card, name) != usual for name, usual in COUNT_DEFAULTS.items())
    return title, {**options, "classes": []} if is_used else options


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
    first_command = (
        "python manage.py add_model ID --backend NAME --prompt-per-million USD --completion-per-million USD"
    )
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
        (PRICES_TITLE, {"fields": [*USUAL_PRICES, "valid_from", "confirmed"]}),
        (OTHER_PRICES_TITLE, {"fields": [*OTHER_PRICES, "tiers", *COUNTS], "classes": ["collapse"]}),
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

    def fill_page(self, request: HttpRequest, rows: list[Any]) -> None:
        super().fill_page(request, rows)
        read_price_versions(rows)
        read_scheduled_versions(rows)

    def panels_of(self, request: HttpRequest, row: Any) -> list[Panel]:
        return [*price_versions_panel(request, row.pk), *super().panels_of(request, row)]

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        model = super().get_object(request, object_id, from_field)
        if model is not None:
            read_scheduled_versions([model])
        return model

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return [_opened(title, options, obj) for title, options in found]
        # The form's own fields are for writing; who may only look is shown the same in words.
        in_words = {
            PRICES_TITLE: ["price", "all_prices"],
            LIMITS_TITLE: ["context_length", "max_output_length", "vocabulary", "quantization"],
            CAPABILITIES_TITLE: ["capabilities"],
        }
        return [
            (title, {"fields": in_words.get(title) or [name for name in options["fields"] if name != "seen"]})
            for title, options in found
            if title != OTHER_PRICES_TITLE
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["id", "price", "all_prices", "vocabulary", "capabilities"] if obj else []

    def save_model(self, request: HttpRequest, obj: CatalogModel, form: Any, change: bool) -> None:
        # The deployments are saved after the model; their names tell its vocabulary already now.
        names = [name for name in request.POST if name.endswith("-upstream_id")]
        saved, _ = services.save_model(
            model_id=obj.pk,
            changes=form.changed_columns,
            card=form.new_card,
            valid_from=form.cleaned_data["valid_from"],
            is_confirmed=form.is_confirmed,
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

    @display(description="All prices")
    def all_prices(self, model: CatalogModel) -> SafeString:
        if model.price_version is None:
            return format_html("<span>{}</span>", "not set")
        card = model.price_version.card
        others = ((name.replace("_", " "), f"{getattr(card, name):,}") for name in COUNTS)
        return card_html(card) + format_html_join("", "<div>{}: {}</div>", others)

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
