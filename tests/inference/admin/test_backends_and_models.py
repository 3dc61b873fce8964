"""Operators manage backends and models in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from billing.prices.card import PriceCard
from inference.backends.registry import credential_of
from inference.catalog import services
from inference.models import Activity, Backend, CatalogModel, Deployment, PassedCheck
from organization.models import AuditEvent, Organization
from tests.factories import SOMEONE
from tests.inference.catalog.factories import deploy, make_backend, make_model, make_served_model
from tests.inference.catalog.model_list_server import ModelListServer, model_list_server

pytestmark = pytest.mark.django_db

SECRET = "sk-very-secret"
BACKEND = {"name": "vllm", "kind": "openai", "base_url": "http://10.0.0.5:8000/v1"}
NO_DEPLOYMENTS = {
    "deployments-TOTAL_FORMS": "0",
    "deployments-INITIAL_FORMS": "0",
}
MODEL = {
    "id": "meta/llama",
    "owned_by": "meta",
    "is_enabled": "on",
    "prompt": "0.15",
    "completion": "0.6",
    "context_length": "1000",
    "max_output_length": "500",
    "input_modalities": ["text", "image"],
    "output_modalities": ["text"],
    "required_checks": "terms, age",
    **NO_DEPLOYMENTS,
}


@pytest.fixture
def console() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="x"))
    return client


@pytest.fixture
def upstream() -> Iterator[ModelListServer]:
    with model_list_server() as server:
        yield server


def page(model: Any, *row: Any) -> str:
    kind = "change" if row else "add"
    return reverse(f"admin:inference_{model._meta.model_name}_{kind}", args=[each.pk for each in row])


def listing(model: Any) -> str:
    return reverse(f"admin:inference_{model._meta.model_name}_changelist")


def save(console: Client, model: Any, fields: dict[str, Any], *row: Any) -> str:
    """Post the form. Returns the text of the page that follows."""
    return console.post(page(model, *row), fields, follow=True).content.decode()


def test_it_works(console: Client) -> None:
    save(console, Backend, {**BACKEND, "credential": SECRET})
    backend = Backend.objects.get()
    deployment_form = {
        "deployments-TOTAL_FORMS": "1",
        "deployments-INITIAL_FORMS": "0",
        "deployments-0-backend": str(backend.pk),
        "deployments-0-upstream_id": "llama-3",
        "deployments-0-weight": "30",
        "deployments-0-is_enabled": "on",
    }
    save(console, CatalogModel, {**MODEL, **deployment_form})

    assert credential_of(backend) == SECRET
    model = CatalogModel.objects.get()
    assert model.pk == "meta/llama"
    assert model.price_version is not None
    assert model.price_version.card == PriceCard.flat(prompt=150_000, completion=600_000)
    assert (model.context_length, model.max_output_length) == (1_000, 500)
    assert (model.input_modalities, model.required_checks) == (["text", "image"], ["terms", "age"])
    assert (model.tokenizer, model.is_tokenizer_exact) == ("llama3", True)
    deployment = Deployment.objects.get()
    assert (deployment.upstream_id, deployment.weight, deployment.is_enabled) == ("llama-3", 30, True)
    trail = AuditEvent.objects.order_by("id").values_list("action", "actor_label")
    actions = ["backend.create", "model.create", "price.create", "deployment.create"]
    assert list(trail) == [(action, "ada") for action in actions]


@pytest.mark.parametrize("model", [Backend, CatalogModel, PassedCheck, Activity])
def test_every_page_opens_for_any_number_of_rows_with_as_few_queries(
    console: Client, model: Any, acme: Organization, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        backend = make_backend(f"b{number}", "openai", base_url="http://10.0.0.1/v1")
        deploy(make_model(f"m{number}"), backend)
        services.pass_check(organization=acme, check_name=f"c{number}", actor=SOMEONE)

    with django_assert_max_num_queries(12):
        assert console.get(listing(model)).status_code == 200
    if model is not Activity:
        assert console.get(page(model, model.objects.first())).status_code == 200
    assert console.get(page(model)).status_code == (403 if model is Activity else 200)


def test_the_credential_goes_in_and_never_comes_out(console: Client) -> None:
    save(console, Backend, {**BACKEND, "credential": SECRET})
    backend = Backend.objects.get()
    refused = save(console, Backend, {**BACKEND, "base_url": "http://169.254.1.1", "credential": SECRET})

    shown = refused + "".join(
        console.get(address).content.decode()
        for address in (
            listing(Backend),
            page(Backend, backend),
            reverse("admin:organization_auditevent_changelist"),
        )
    )

    assert SECRET not in shown
    assert "gAAAA" not in shown  # nor its ciphertext
    assert SECRET not in str(AuditEvent.objects.values_list("details", flat=True))


def test_an_empty_key_field_keeps_the_key_and_a_box_removes_it(console: Client) -> None:
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"], credential=SECRET)

    save(console, Backend, {**BACKEND, "is_enabled": "on", "credential": ""}, backend)
    backend.refresh_from_db()
    assert credential_of(backend) == SECRET
    assert AuditEvent.objects.count() == 1  # nothing changed

    save(console, Backend, {**BACKEND, "is_enabled": "on", "removes_credential": "on"}, backend)
    backend.refresh_from_db()
    assert backend.credential_ciphertext is None
    assert AuditEvent.objects.latest("id").details == {
        "credential_ciphertext": "removed",
        "before": {"credential_ciphertext": "set"},
    }


@pytest.mark.slow
def test_a_key_does_not_follow_to_another_host(console: Client) -> None:
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"], credential=SECRET)

    shown = save(console, Backend, {**BACKEND, "base_url": "http://evil.example/v1"}, backend)

    assert "give the API key again" in shown
    backend.refresh_from_db()
    assert backend.base_url == BACKEND["base_url"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"base_url": "http://169.254.169.254/latest"}, "Link-local and metadata addresses"),
        ({"base_url": "http://0xa9fea9fe/"}, "Link-local and metadata addresses"),
        ({"base_url": "http://metadata.google.internal/"}, "hands out credentials"),
        ({"base_url": ""}, "http:// or https://"),
        ({"option_server": "abacus"}, "abacus is not one of the available choices"),
        ({"option_thinking": "budget"}, "has no such option"),
        ({"kind": "abacus"}, "abacus is not one of the available choices"),
        ({"credential": "two words"}, "printable ASCII without spaces"),
    ],
)
def test_a_backend_that_cannot_be_is_refused(
    console: Client, changes: dict[str, str], complaint: str
) -> None:
    shown = save(console, Backend, {**BACKEND, **changes})

    assert complaint in shown
    assert not Backend.objects.exists()


def test_hosts_may_be_restricted(console: Client, settings: Any) -> None:
    settings.GATEWAY_BACKEND_HOSTS = ["api.openai.com"]

    assert "not one of those" in save(console, Backend, BACKEND)
    assert not Backend.objects.exists()


def test_the_tokenizer_is_chosen_from_a_list_and_may_be_approximate(console: Client) -> None:
    save(console, CatalogModel, {**MODEL, "tokenizer": "qwen3"})
    model = CatalogModel.objects.get()
    assert (model.tokenizer, model.is_tokenizer_exact) == ("qwen3", False)
    assert "qwen3, approximate" in console.get(listing(CatalogModel)).content.decode()

    save(console, CatalogModel, {**MODEL, "tokenizer": "qwen3", "is_tokenizer_exact": "on"}, model)
    model.refresh_from_db()
    assert (model.tokenizer, model.is_tokenizer_exact) == ("qwen3", True)
    assert "approximate" not in console.get(listing(CatalogModel)).content.decode()

    save(console, CatalogModel, {**MODEL, "tokenizer": ""}, model)
    model.refresh_from_db()
    assert (model.tokenizer, model.is_tokenizer_exact) == ("o200k_base", False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"prompt": "1e-7"}, "finer than 6"),
        ({"prompt": "-1"}, "not negative"),
        ({"prompt": "free"}, "not an amount"),
        ({"max_output_length": "1001"}, "does not fit"),
        ({"tokenizer": "abacus"}, "Tokenizers are"),
        ({"id": "a//b"}, "no `//`"),
        ({"input_modalities": ["smell"]}, "valid choice"),
    ],
)
def test_a_model_that_cannot_be_is_refused(console: Client, changes: dict[str, Any], complaint: str) -> None:
    shown = save(console, CatalogModel, {**MODEL, **changes})

    assert complaint in shown
    assert not CatalogModel.objects.exists()


@pytest.mark.slow
def test_deployments_are_changed_and_removed_with_a_trail(console: Client) -> None:
    model = make_served_model("m")
    deployment = Deployment.objects.get()
    other = make_backend("other")
    form = {
        **{name: value for name, value in MODEL.items() if name != "id"},
        "prompt": "0.001",
        "completion": "0.002",
        "deployments-TOTAL_FORMS": "1",
        "deployments-INITIAL_FORMS": "1",
        "deployments-0-id": str(deployment.pk),
        "deployments-0-model": "m",
        # A deployment stays on its backend, whatever is posted.
        "deployments-0-backend": str(other.pk),
        "deployments-0-weight": "7",
    }

    save(console, CatalogModel, form, model)
    deployment.refresh_from_db()
    assert (deployment.weight, deployment.is_enabled, deployment.backend.name) == (7, False, "simulator")
    assert AuditEvent.objects.latest("id").details["weight"] == 7

    save(console, CatalogModel, {**form, "deployments-0-DELETE": "on"}, model)
    assert not Deployment.objects.exists()
    assert AuditEvent.objects.latest("id").action == "deployment.remove"


def test_the_connection_of_a_backend_is_tested_on_demand(console: Client, upstream: ModelListServer) -> None:
    backend = make_backend("vllm", "openai", base_url=upstream.base_url)
    body = {"action": "ask", "_selected_action": [str(backend.pk)]}

    good = console.post(listing(Backend), body, follow=True).content.decode()
    upstream.status = 500
    bad = console.post(listing(Backend), body, follow=True).content.decode()

    assert "vllm: ready." in good
    assert "It answers with status 500." in bad
    assert Backend.objects.get().probe_problem == "It answers with status 500."


def test_checks_are_passed_and_withdrawn(console: Client, acme: Organization) -> None:
    save(console, PassedCheck, {"organization": acme.pk, "check_name": "terms"})
    passed = PassedCheck.objects.get()
    make_model("acme/strict", required_checks=["terms"])
    assert console.get(reverse("admin:inference_passedcheck_delete", args=[passed.pk])).status_code == 403
    address = reverse("admin:inference_passedcheck_do", args=[passed.pk, "withdraw"])
    asked = console.post(address).content.decode()
    for words in ("no longer passes the check", "acme/strict", "Acme"):
        assert words in asked
    assert PassedCheck.objects.exists()

    console.post(address, {"confirmed": "yes"})

    assert not PassedCheck.objects.exists()
    actions = AuditEvent.objects.filter(organization=acme).order_by("-id").values_list("action", flat=True)
    assert list(actions[:2]) == ["check.withdraw", "check.pass"]


def test_a_stranger_to_the_console_sees_and_changes_nothing(db: None) -> None:
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"])
    viewer = get_user_model().objects.create_user("eve", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_backend"))
    client = Client()
    assert client.get(listing(Backend)).status_code == 302

    client.force_login(viewer)
    body = {"action": "ask", "_selected_action": [str(backend.pk)]}
    client.post(listing(Backend), body, follow=True)

    assert client.get(listing(Backend)).status_code == 200
    assert client.post(page(Backend), BACKEND).status_code == 403
    assert client.post(page(Backend, backend), BACKEND).status_code == 403
    assert client.get(listing(CatalogModel)).status_code == 403
    backend.refresh_from_db()
    assert backend.probed_at is None


def test_who_may_only_look_sees_the_kind_and_the_options(db: None) -> None:
    options = {"server": "vllm", "lacks": ["seed", "n"]}
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"], options=options)
    viewer = get_user_model().objects.create_user("eve", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_backend"))
    client = Client()
    client.force_login(viewer)

    shown = client.get(page(Backend, backend)).content.decode()

    assert "OpenAI-compatible" in shown
    assert "<div>server: vllm</div><div>lacks: seed, n</div>" in shown
    assert "option_server" not in shown


def test_what_was_stored_stays_when_another_field_is_changed(console: Client) -> None:
    options = {"server": "vllm", "lacks": ["seed", "n"], "api": "chat"}
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"], options=options)
    form = {"kind": "openai", "base_url": "http://10.0.0.5:8000/v2", "is_enabled": "on"}
    form |= {"option_server": "vllm", "option_api": "chat", "option_lacks": "seed, n"}

    save(console, Backend, form, backend)
    backend.refresh_from_db()
    assert (backend.base_url, backend.options) == ("http://10.0.0.5:8000/v2", options)

    save(console, Backend, {**form, "option_server": "", "option_lacks": "n"}, backend)
    backend.refresh_from_db()
    assert backend.options == {"lacks": ["n"], "api": "chat"}
    assert AuditEvent.objects.latest("id").details["before"] == {"options": options}


def test_an_option_that_no_kind_has_any_more_is_removed_with_a_word(console: Client) -> None:
    backend = make_backend("vllm", "openai", base_url=BACKEND["base_url"], options={"server": "vllm"})
    Backend.objects.update(options={"server": "vllm", "colour": "red"})
    form = {**BACKEND, "is_enabled": "on", "option_server": "vllm"}

    shown = save(console, Backend, form, backend)

    assert "Removed options that no kind has: colour." in shown
    backend.refresh_from_db()
    assert backend.options == {"server": "vllm"}
    assert AuditEvent.objects.latest("id").details["before"]["options"]["colour"] == "red"
