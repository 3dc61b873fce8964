"""The console's pages for backends and for the checks that organizations passed."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway_site.console.kit.model_admin import (
    ActionForm,
    Confirmation,
    ModelAdmin,
    Selection,
    TextInput,
    confirmed_action,
    display,
)
from gateway_site.console.kit.timestamps import timestamp
from inference.admin.backend_form import BackendForm, option_fields
from inference.backends.kinds import KINDS, all_options, label_of
from inference.catalog import services
from inference.catalog.model_import import import_models
from inference.catalog.probes import probe
from inference.models import Backend, CatalogModel, Deployment, PassedCheck
from organization.audit.trail import Actor

# So many models are named in a list of facts.
MOST_MODELS = 5


class ImportForm(ActionForm):
    before_ids = forms.CharField(
        label="Prefix",
        required=False,
        max_length=100,
        widget=TextInput(attrs={"autocomplete": "off"}),
        help_text="Before each id here, such as acme/. Empty: as the backend names them.",
    )


def models_only_on(backend: Backend) -> QuerySet[CatalogModel]:
    """Enabled models whose only enabled deployment is on this backend."""
    live = Deployment.objects.filter(is_enabled=True, backend__is_enabled=True, model=OuterRef("pk"))
    return CatalogModel.objects.filter(
        Exists(live.filter(backend=backend)), ~Exists(live.exclude(backend=backend)), is_enabled=True
    )


def backend_facts(backend: Backend, given: dict[str, Any]) -> list[tuple[str, Any]]:
    only_models = list(models_only_on(backend).values_list("pk", flat=True)[: MOST_MODELS + 1])
    shown = ", ".join(only_models[:MOST_MODELS]) + (" and more" if len(only_models) > MOST_MODELS else "")
    return [
        ("Kind", label_of(backend.kind)),
        ("Address", backend.base_url or "none"),
        ("Models deployed here", backend.deployments.filter(is_enabled=True).count()),
        ("Models deployed nowhere else", shown or "none"),
        ("Last probe", _probe(backend)),
    ]


def _probe(backend: Backend) -> SafeString:
    if not backend.probe_problem:
        return timestamp(backend.probed_at)
    return format_html('{}<span class="under">{}</span>', timestamp(backend.probed_at), backend.probe_problem)


class KindFilter(admin.SimpleListFilter):
    """The kinds of the table, by their labels."""

    title = "kind"
    parameter_name = "kind__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, kind.label) for name, kind in KINDS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Backend]) -> QuerySet[Backend]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(Backend)
class BackendAdmin(ModelAdmin):
    """The page of backends. The credential goes in and never comes out."""

    about = (
        "A backend is a server that answers for models: vLLM, llama.cpp, a vendor's API, or the simulator."
    )
    first_step = "Add one here or with this command, then import its models."
    first_command = "python manage.py add_backend NAME --kind openai --base-url URL"
    form = BackendForm
    list_display = [
        "name",
        "kind_label",
        "address",
        "state",
        "health",
        "deployment_count",
        "credential_state",
        "probed",
    ]
    list_filter = [KindFilter, "is_enabled"]
    search_fields = ["name", "base_url"]
    ordering = ["name"]
    readonly_fields = ["credential_state", "created", "probed"]
    actions = ["ask", "sync", "enable", "disable"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Backend]:
        found: QuerySet[Backend] = super().get_queryset(request)
        return found.annotate(
            enabled_deployment_count=Count("deployments", filter=Q(deployments__is_enabled=True))
        )

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = type("BackendForm", (BackendForm,), option_fields())
        return super().get_form(request, obj, change, **{"form": form, **kwargs})

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        written = ["name", "kind", "base_url", *option_fields(), "credential"]
        if obj is None:
            return written
        if self.has_change_permission(request, obj):
            return [*written, "removes_credential", "seen", "is_enabled", *self.readonly_fields]
        # What is only ever written is nothing to look at; options are shown in words.
        return ["name", "kind_label", "base_url", "option_values", "is_enabled", *self.readonly_fields]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # The name is how commands and activity records know it.
        return ["name", *self.readonly_fields] if obj else list(self.readonly_fields)

    def save_model(self, request: HttpRequest, obj: Backend, form: Any, change: bool) -> None:
        given = form.cleaned_data
        if form.removed_options:
            removed = ", ".join(form.removed_options)
            self.message_user(request, f"Removed options that no kind has: {removed}.", messages.WARNING)
        saved, _ = services.save_backend(
            name=obj.name,
            kind=given["kind"],
            base_url=given["base_url"],
            credential="" if given.get("removes_credential") else given["credential"] or None,
            options=form.cleaned_options,
            is_enabled=given.get("is_enabled"),
            actor=Actor.staff(request.user),
        )
        obj.pk = saved.pk

    # --- columns -------------------------------------------------------------------------------------

    @display(description="Kind", ordering="kind")
    def kind_label(self, backend: Backend) -> str:
        return label_of(backend.kind)

    @display(description="Options")
    def option_values(self, backend: Backend) -> SafeString:
        # In the table's order: PostgreSQL keeps the keys of a JSON column in an order of its own.
        names = [*(name for name in all_options() if name in backend.options), *sorted(backend.options)]
        values = {name: backend.options[name] for name in names}
        shown = [
            (name, ", ".join(value) if isinstance(value, list) else value) for name, value in values.items()
        ]
        return format_html_join("", "<div>{}: {}</div>", shown) or format_html("{}", "none")

    @display(description="Address", ordering="base_url")
    def address(self, backend: Backend) -> str:
        return backend.base_url or "none"

    @display(description="API key", label={"set": "success"})
    def credential_state(self, backend: Backend) -> str:
        if backend.credential_ciphertext is not None:
            return "set"
        return "not set" if backend.kind not in KINDS or KINDS[backend.kind].has_credential else "none needed"

    @display(description="State", label={"enabled": "success", "disabled": "danger"}, ordering="is_enabled")
    def state(self, backend: Backend) -> str:
        return "enabled" if backend.is_enabled else "disabled"

    @display(description="Health", label={"ready": "success", "failing": "danger"}, ordering="probe_problem")
    def health(self, backend: Backend) -> str:
        if backend.probed_at is None:
            return "not tested yet"
        return "failing" if backend.probe_problem else "ready"

    @display(description="Models", ordering="enabled_deployment_count")
    def deployment_count(self, backend: Any) -> int:
        return int(backend.enabled_deployment_count)

    @display(description="Last probe", ordering="probed_at")
    def probed(self, backend: Backend) -> SafeString:
        return _probe(backend)

    @display(description="Created")
    def created(self, backend: Backend) -> SafeString:
        return timestamp(backend.created_at)

    # --- actions -------------------------------------------------------------------------------------

    @confirmed_action(
        label="Test connection",
        consequence="The backend is asked for its list of models, and the result is shown as its health.",
        icon="network_ping",
        confirmation=Confirmation.NONE,
        selection=Selection.TOGETHER,
    )
    def ask(self, request: HttpRequest, backends: list[Backend]) -> None:
        for result in probe(backends):
            if result.problem:
                self.message_user(request, f"{result.backend}: {result.problem}", messages.ERROR)
            else:
                self.message_user(request, f"{result.backend}: ready.", messages.SUCCESS)

    @confirmed_action(
        label="Import models",
        consequence="Models of the backend's own list are added to the catalog: disabled and without a "
        "price, so nothing is served before somebody decides. Those that are there are left alone.",
        icon="sync",
        confirmation_rows=backend_facts,
        applies=lambda backend: backend.kind in KINDS and KINDS[backend.kind].has_model_list,
        form=ImportForm,
        selection=Selection.ONE,
    )
    def sync(self, request: HttpRequest, backend: Backend, given: dict[str, Any]) -> str:
        outcome = import_models(
            backend=backend,
            prefix=given["before_ids"],
            changes={"is_enabled": False},
            actor=Actor.staff(request.user),
        )
        return ", ".join(f"{len(ids)} {state}" for state, ids in outcome.items())

    @confirmed_action(
        label="Enable",
        consequence="Requests go to the backend again within seconds.",
        done="enabled",
        icon="toggle_on",
        confirmation_rows=backend_facts,
        applies=lambda backend: not backend.is_enabled,
    )
    def enable(self, request: HttpRequest, backend: Backend) -> None:
        self._switch(request, backend, True)

    @confirmed_action(
        label="Disable",
        consequence="No new request goes to the backend. Running ones end there. Models that are deployed "
        "nowhere else are not served.",
        done="disabled",
        icon="toggle_off",
        confirmation_rows=backend_facts,
        applies=lambda backend: backend.is_enabled,
        is_dangerous=True,
    )
    def disable(self, request: HttpRequest, backend: Backend) -> None:
        self._switch(request, backend, False)

    def _switch(self, request: HttpRequest, backend: Backend, is_enabled: bool) -> None:
        services.save_backend(
            name=backend.name,
            kind=backend.kind,
            base_url=backend.base_url,
            is_enabled=is_enabled,
            actor=Actor.staff(request.user),
        )


def withdrawal_facts(passed: PassedCheck, given: dict[str, Any]) -> list[tuple[str, Any]]:
    required = CatalogModel.objects.order_by("pk").values_list("pk", "required_checks")
    closed = [model for model, checks in required if passed.check_name in checks]
    shown = ", ".join(closed[:MOST_MODELS]) + (" and more" if len(closed) > MOST_MODELS else "")
    return [
        ("Check", passed.check_name),
        ("Organization", passed.organization),
        ("Passed", timestamp(passed.created_at)),
        ("Models that require it", shown or "none"),
    ]


@admin.register(PassedCheck)
class PassedCheckAdmin(ModelAdmin):
    """The page of checks that organizations have passed, which some models require."""

    about = "Some models ask that an organization has passed a check, such as terms that it accepted."
    first_step = "Add an entry when an organization has passed one. Models without checks need none."
    list_display = ["check_name", "organization", "created"]
    list_select_related = ["organization"]
    search_fields = ["check_name", "organization__name"]
    autocomplete_fields = ["organization"]
    readonly_fields = ["created"]
    ordering = ["check_name", "organization__name"]
    actions = ["withdraw"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PassedCheck]:
        found: QuerySet[PassedCheck] = super().get_queryset(request)
        return found.select_related("organization")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["organization", "check_name", *(["created"] if obj else [])]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: PassedCheck, form: Any, change: bool) -> None:
        passed = services.pass_check(
            organization=obj.organization, check_name=obj.check_name, actor=Actor.staff(request.user)
        )
        obj.pk = passed.pk

    @display(description="Passed", ordering="created_at")
    def created(self, passed: PassedCheck) -> SafeString:
        return timestamp(passed.created_at)

    @confirmed_action(
        label="Withdraw",
        consequence="The organization no longer passes the check. Within seconds the models that require it "
        "are closed to all of its keys. It can be passed again.",
        done="withdrawn",
        icon="remove_moderator",
        permission="inference.delete_passedcheck",
        confirmation_rows=withdrawal_facts,
        is_dangerous=True,
        removes_row=True,
    )
    def withdraw(self, request: HttpRequest, passed: PassedCheck) -> None:
        services.withdraw_check(passed=passed, actor=Actor.staff(request.user))
