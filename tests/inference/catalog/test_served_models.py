"""A request finds its model: price, limits, places; and a change is seen soon, everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from cryptography.fernet import Fernet
from django.utils import timezone

from billing.prices import versions
from billing.prices.card import PriceCard
from gateway_site.api.errors import ModelNotConfigured, ModelNotFound, PermissionDenied
from inference.backends import registry
from inference.backends.anthropic.backend import AnthropicBackend
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.catalog import served_models, services
from inference.catalog.served_models import ServedModel
from inference.models import Backend, Deployment
from organization.models import Organization, Project
from tests.factories import SOMEONE, make_project_key
from tests.inference.catalog.factories import deploy, make_backend, make_model, make_served_model

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key(project: Project) -> Any:
    return make_project_key(project).key


def ask(model_id: str, key: Any) -> ServedModel:
    return async_to_sync(served_models.served_model)(model_id, key)


def prompt_price(model: ServedModel) -> int:
    return model.version.card.price_for(0).prompt


def test_it_works(key: Any) -> None:
    model = make_served_model(
        "simulator/echo", context_length=1_000, max_output_length=100, tokenizer="o200k_base"
    )

    found = ask("simulator/echo", key)

    assert found.id == "simulator/echo"
    price = found.version.card.price_for(0)
    assert (price.prompt, price.cached, price.completion) == (1_000, 1_000, 2_000)
    assert (price.image, price.request) == (0, 0)
    assert (found.context_length, found.max_output_length) == (1_000, 100)
    assert (found.tokenizer, found.input_modalities) == ("o200k_base", ("text",))
    (target,) = found.targets
    assert target.deployment_id == model.deployments.get().pk
    assert (target.name, target.model) == ("simulator/simulator/echo", "simulator/echo")
    assert found.weights == (100,)


@pytest.mark.parametrize("model_id", ["nobody/has-this", "", "simulator/echo\0", "\ud800", "x" * 5_000])
def test_an_unknown_model_is_not_found(key: Any, model_id: str) -> None:
    make_served_model()

    with pytest.raises(ModelNotFound) as caught:
        ask(model_id, key)

    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")


def test_one_that_is_switched_off_is_not_found(key: Any) -> None:
    make_served_model(is_enabled=False)

    with pytest.raises(ModelNotFound):
        ask("simulator/echo", key)


def test_a_price_that_is_not_set_is_never_zero(key: Any) -> None:
    make_served_model(prices=None)

    with pytest.raises(ModelNotConfigured) as caught:
        ask("simulator/echo", key)

    assert caught.value.status == 503
    assert caught.value.headers["X-Should-Retry"] == "false"


def test_a_price_of_zero_is_a_price(key: Any) -> None:
    make_served_model(prompt_price_picousd=0, completion_price_picousd=0)

    assert prompt_price(ask("simulator/echo", key)) == 0


def test_a_price_of_tomorrow_is_not_charged_today(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_models._entries, "max_age_seconds", 0)
    make_served_model()
    tomorrow = timezone.now() + timedelta(days=1)
    card = PriceCard.flat(prompt=7_000, completion=7_000)
    versions.add_version(
        model="simulator/echo", card=card, source="tests", actor=SOMEONE, valid_from=tomorrow
    )

    assert prompt_price(ask("simulator/echo", key)) == 1_000
    later = versions.in_force_for("simulator/echo", tomorrow)
    assert later is not None
    assert later.card == card


def test_the_last_of_two_versions_of_one_moment_is_in_force(key: Any) -> None:
    make_served_model()
    moment = timezone.now()
    for picousd in (3_000, 4_000):
        card = PriceCard.flat(prompt=picousd, completion=picousd)
        versions.add_version(
            model="simulator/echo", card=card, source="tests", actor=SOMEONE, valid_from=moment
        )

    assert prompt_price(ask("simulator/echo", key)) == 4_000


@pytest.mark.parametrize("change", ["no deployment", "deployment off", "backend off"])
def test_without_a_place_it_is_not_served(key: Any, change: str) -> None:
    make_served_model()
    if change == "no deployment":
        Deployment.objects.all().delete()
    if change == "deployment off":
        Deployment.objects.update(is_enabled=False)
    if change == "backend off":
        Backend.objects.update(is_enabled=False)

    with pytest.raises(ModelNotConfigured):
        ask("simulator/echo", key)


def test_a_locked_model_is_for_those_who_passed(key: Any, rival_project: Project, acme: Organization) -> None:
    stranger = make_project_key(rival_project).key
    make_served_model(required_checks=["terms", "age"])
    services.pass_check(organization=acme, check_name="terms", actor=SOMEONE)

    with pytest.raises(PermissionDenied, match="age"):
        ask("simulator/echo", key)
    services.pass_check(organization=acme, check_name="age", actor=SOMEONE)

    assert ask("simulator/echo", key)
    with pytest.raises(PermissionDenied, match="age, terms"):
        ask("simulator/echo", stranger)


def test_it_asks_the_database_no_more_than_once_a_second(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_served_model()
    monkeypatch.setattr(served_models._entries, "max_age_seconds", 3_600)
    first = ask("simulator/echo", key)
    # As another process would: nothing tells this one.
    card = PriceCard.flat(prompt=5_000, completion=5_000)
    versions.add_version(model="simulator/echo", card=card, source="tests", actor=SOMEONE)

    assert ask("simulator/echo", key) is first
    monkeypatch.setattr(served_models._entries, "max_age_seconds", 0)
    assert prompt_price(ask("simulator/echo", key)) == 5_000


def test_the_bound_is_a_second() -> None:
    assert served_models._entries.max_age_seconds == served_models._passed_checks.max_age_seconds == 1.0


def test_a_service_tells_its_own_process_at_once(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_served_model()
    monkeypatch.setattr(served_models._entries, "max_age_seconds", 3_600)
    assert prompt_price(ask("simulator/echo", key)) == 1_000

    make_model("simulator/echo", prompt_price_picousd=7)

    assert prompt_price(ask("simulator/echo", key)) == 7


def test_a_backend_is_one_object_until_its_row_changes(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_models._entries, "max_age_seconds", 0)
    model = make_model("m")
    deploy(model, make_backend("vllm", "openai", base_url="http://127.0.0.1:9/v1", credential="secret-1"))

    first, second = (ask("m", key).targets[0].backend for _ in "12")
    make_backend("vllm", "openai", base_url="http://127.0.0.1:9/v1", credential="secret-2")
    third = ask("m", key).targets[0].backend

    assert isinstance(first, OpenAIBackend)
    assert first is second
    assert third is not first
    assert "secret" not in repr(third)


def test_each_kind_of_backend_becomes_its_class() -> None:
    row = make_backend("claude", "anthropic", base_url="https://api.anthropic.com", credential="k")
    server = make_backend(
        "server", "openai", base_url="http://10.0.0.1/v1", options={"server": "ollama", "lacks": ["seed"]}
    )

    assert isinstance(registry.backend_for(row), AnthropicBackend)
    assert {"seed", "logprobs"} <= registry.backend_for(server).lacks


def test_a_backend_that_cannot_be_used_leaves_the_others(key: Any, settings: Any) -> None:
    model = make_model("m")
    deploy(model, make_backend("broken", "openai", base_url="http://10.0.0.1/v1", credential="k"))
    deploy(model, make_backend("refused", "openai", base_url="http://10.0.0.2/v1"))
    deploy(model, make_backend())
    # As after a rotation that lost the old key, and a list of hosts that came later.
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    settings.GATEWAY_BACKEND_HOSTS = ["10.0.0.1"]

    assert [target.name for target in ask("m", key).targets] == ["simulator/m"]


def test_credentials_are_not_readable_in_the_database() -> None:
    make_backend("vllm", "openai", base_url="http://127.0.0.1:9/v1", credential="very-secret")

    row = Backend.objects.get(name="vllm")

    assert row.credential_ciphertext
    assert b"very-secret" not in bytes(row.credential_ciphertext)
    assert registry.credential_of(row) == "very-secret"


def test_rotated_encryption_keys_still_open_it(settings: Any) -> None:
    row = make_backend("vllm", "openai", base_url="http://127.0.0.1:9/v1", credential="very-secret")
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *settings.ENCRYPTION_KEYS]

    assert registry.credential_of(row) == "very-secret"
