"""Operators add backends and models from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError

from billing.prices.card import PriceCard
from gateway_site import env
from inference.backends import model_list
from inference.backends.registry import credential_of
from inference.catalog import services
from inference.models import Backend, CatalogModel, Deployment
from inference.tasks import probe_backends
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.harness.commands import run, say
from tests.harness.live_server import free_port
from tests.inference.catalog.model_list_server import ModelListServer, model_list_server

pytestmark = pytest.mark.django_db

SECRET = "sk-very-secret"


@pytest.fixture
def upstream() -> Iterator[ModelListServer]:
    with model_list_server() as server:
        yield server


@pytest.fixture
def key_variable(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UPSTREAM_KEY", f" {SECRET}\n")
    return "UPSTREAM_KEY"


def test_it_works(key_variable: str) -> None:
    backend = run(
        "add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5:8000/v1/",
        "--api-key-env", key_variable, "--server", "vllm",
    )  # fmt: skip
    model = run(
        "add_model", "meta/llama", "--backend", "vllm", "--upstream-id", "llama-3",
        "--prompt-price", "0.00000015", "--completion-price", "0.0000006", "--cached-price", "0.00000005",
        "--request-price", "0.01", "--image-price", "0", "--tokenizer", "llama3",
        "--context-length", "131072", "--max-output-length", "8192",
    )  # fmt: skip

    assert backend == {
        "name": "vllm",
        "kind": "openai",
        "base_url": "http://10.0.0.5:8000/v1",
        "server": "vllm",
        "has_credential": True,
        "created": True,
    }
    assert model["pricing"] == {
        "prompt": "0.00000015",
        "completion": "0.0000006",
        "cached": "0.00000005",
        "request": "0.01",
        "image": "0",
    }
    assert (model["is_priced"], model["is_enabled"], model["created"]) == (True, True, True)
    row = CatalogModel.objects.get()
    assert row.price_version is not None
    assert row.price_version.card == PriceCard.flat(
        prompt=150_000, completion=600_000, cached=50_000, request=10**10, image=0
    )
    assert (row.context_length, row.max_output_length) == (131_072, 8_192)
    assert (row.tokenizer, row.is_tokenizer_exact) == ("llama3", True)
    deployment = Deployment.objects.select_related("backend").get()
    assert (deployment.model_id, deployment.backend.name, deployment.upstream_id) == (
        "meta/llama",
        "vllm",
        "llama-3",
    )
    assert credential_of(deployment.backend) == SECRET


def test_the_secret_is_nowhere_but_encrypted(key_variable: str) -> None:
    words = ("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v1")
    printed = json.dumps(run(*words, "--api-key-env", key_variable))
    printed += say(*words, "--api-key-env", key_variable)
    printed += json.dumps(list(AuditEvent.objects.values("details", "actor_label", "target_id")))

    assert SECRET not in printed
    assert SECRET not in repr(Backend.objects.values_list().get())


def test_running_twice_changes_nothing(key_variable: str) -> None:
    backend = ("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v1")
    prices = ("--prompt-per-million", "1", "--completion-per-million", "2")
    model = ("add_model", "m", "--backend", "vllm", *prices)
    run(*backend)
    first = run(*model)
    events = AuditEvent.objects.count()

    again, second = run(*backend), run(*model)

    assert (again["created"], second["created"]) == (False, False)
    assert {**first, "created": False} == second
    assert AuditEvent.objects.count() == events == 4  # the backend, the model, its price, its deployment


def test_what_is_not_named_stays(key_variable: str) -> None:
    run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v1",
        "--api-key-env", key_variable, "--server", "vllm")  # fmt: skip
    run("add_model", "m", "--backend", "vllm", "--prompt-per-million", "1", "--completion-per-million", "2",
        "--context-length", "1000")  # fmt: skip

    backend = run("add_backend", "vllm", "--kind", "openai")
    model = run("add_model", "m", "--backend", "vllm", "--completion-per-million", "3")

    assert (backend["base_url"], backend["server"]) == ("http://10.0.0.5/v1", "vllm")
    assert backend["has_credential"]
    assert (model["card"]["prompt"], model["card"]["completion"]) == ("1", "3")
    assert model["context_length"] == 1_000


def test_a_server_may_name_a_model_by_its_file() -> None:
    run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v1")

    made = run("add_model", "llama", "--backend", "vllm", "--upstream-id", "/models/My Llama.gguf")

    assert made["upstream_id"] == "/models/My Llama.gguf"


def test_a_key_does_not_follow_to_another_host(key_variable: str) -> None:
    run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v1",
        "--api-key-env", key_variable)  # fmt: skip

    with pytest.raises(CommandError, match="give the API key again"):
        run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://evil.example/v1")

    assert Backend.objects.get().base_url == "http://10.0.0.5/v1"
    run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.5/v2")
    run("add_backend", "vllm", "--kind", "openai", "--base-url", "http://10.0.0.6/v1",
        "--api-key-env", key_variable)  # fmt: skip


def test_the_sdks_own_variables_are_the_default(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.OPENAI_BASE_URL = "https://api.example.com/v1"
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    given = run("add_backend", "elsewhere", "--kind", "openai", "--base-url", "http://10.0.0.5/v1")
    default = run("add_backend", "openai", "--kind", "openai")

    assert (default["base_url"], default["has_credential"]) == ("https://api.example.com/v1", True)
    assert not given["has_credential"]


def test_a_key_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    monkeypatch.setenv("UPSTREAM_KEY_FILE", str(tmp_path / "key"))

    run("add_backend", "claude", "--kind", "anthropic", "--base-url", "https://api.anthropic.com",
        "--api-key-env", "UPSTREAM_KEY")  # fmt: skip

    assert credential_of(Backend.objects.get()) == SECRET


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["add_backend", "x", "--kind", "openai", "--base-url", "http://169.254.169.254/v1"], "Link-local"),
        (["add_backend", "x", "--kind", "openai", "--base-url", "http://[fe80::1]/v1"], "Link-local"),
        (["add_backend", "x", "--kind", "openai", "--base-url", "http://metadata.google.internal"], "cloud"),
        (["add_backend", "x", "--kind", "openai", "--base-url", "ftp://10.0.0.1"], "http://"),
        (["add_backend", "x", "--kind", "openai", "--base-url", "http://u:p@10.0.0.1"], "its own field"),
        (["add_backend", "x", "--kind", "anthropic"], "http://"),
        (["add_backend", "x", "--kind", "simulator", "--base-url", "http://10.0.0.1"], "no address"),
        (["add_backend", "x", "--kind", "simulator", "--server", "vllm"], "--server"),
        (["add_backend", "  ", "--kind", "simulator"], "name has 1 to 200"),
        (["add_backend", "x", "--kind", "openai", "--api-key-env", "NOT_SET"], "NOT_SET is empty"),
        (["add_model", "m", "--backend", "nobody"], "no backend named"),
        (["add_model", "m", "--backend", "sim", "--prompt-price", "1e-13"], "finer than 12"),
        (["add_model", "m", "--backend", "sim", "--prompt-price", "-1"], "--prompt-price"),
        (["add_model", "m", "--backend", "sim", "--image-price", "free"], "--image-price"),
        (["add_model", "m", "--backend", "sim", "--prompt-per-million", "1"], "completion is missing"),
        (["add_model", "m", "--backend", "sim", "--prompt-per-million", "1e-7"], "finer than 6"),
        (
            ["add_model", "m", "--backend", "sim", "--prompt-per-million", "1", "--prompt-price", "1"],
            "--prompt-per-million or --prompt-price, not both",
        ),
        (["add_model", "m", "--backend", "sim", "--image-tokens", "5"], "no price yet"),
        (["add_model", "m", "--backend", "sim", "--card", "/nowhere/card.json"], "cannot be read"),
        (["add_model", "m", "--backend", "sim", "--valid-from", "tomorrow"], "is not a time such as"),
        (["add_model", "m", "--backend", "sim", "--valid-from", "0001-01-01T00:00Z"], "in a year from 2000"),
        (
            ["add_model", "m", "--backend", "sim", "--prompt-price", "3", "--completion-price", "15"],
            "Are the prices of m right",
        ),
        (["add_model", "m", "--backend", "sim", "--tokenizer", "abacus"], "Tokenizers are"),
        (["add_model", "m", "--backend", "sim", "--context-length", "0"], "does not fit"),
        (["add_model", "m", "--backend", "sim", "--max-output-length", "9000"], "does not fit"),
        (["add_model", "m", "--backend", "sim", "--weight", "0"], "weight"),
        (["add_model", "a//b", "--backend", "sim"], "no `//`"),
        (["add_model", "a/../b", "--backend", "sim"], "no `//`"),
        (["add_model", "a b", "--backend", "sim"], "no spaces"),
        (["add_model", "x" * 201, "--backend", "sim"], "1 to 200"),
        (["add_model", "m", "--backend", "sim", "--upstream-id", "a\nb"], "name on a backend"),
        (["sync_models", "nobody"], "no backend named"),
        (["sync_models", "sim"], "has no list"),
    ],
)
def test_a_mistake_is_one_clear_line_and_changes_nothing(words: list[str], complaint: str) -> None:
    services.save_backend(name="sim", kind="simulator", actor=SOMEONE)

    with pytest.raises(CommandError, match=complaint) as caught:
        run(*words)

    assert "\n" not in str(caught.value)
    assert (Backend.objects.count(), CatalogModel.objects.count()) == (1, 0)


def test_a_setting_restricts_the_hosts(settings: Any) -> None:
    settings.GATEWAY_BACKEND_HOSTS = ["api.openai.com", "10.0.0.0/8"]

    run("add_backend", "a", "--kind", "openai", "--base-url", "https://API.openai.com/v1")
    run("add_backend", "b", "--kind", "openai", "--base-url", "http://10.1.2.3/v1")
    with pytest.raises(CommandError, match="not one of those"):
        run("add_backend", "c", "--kind", "openai", "--base-url", "http://192.168.0.1/v1")


def test_sync_imports_the_list_switched_off_and_unpriced(upstream: ModelListServer) -> None:
    upstream.offer({"id": "a", "max_model_len": 32_000}, "org/b:free", {"id": "c", "context_length": 100})
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url)
    run("add_model", "c", "--backend", "vllm", "--prompt-per-million", "1", "--completion-per-million", "1")

    outcome = run("sync_models", "vllm")

    assert outcome == {
        "backend": "vllm",
        "added": ["a", "org/b:free"],
        "present": ["c"],
        "skipped": [],
        "card": None,
    }
    added = CatalogModel.objects.exclude(pk="c")
    assert not any(model.is_enabled or model.price_version for model in added)
    assert CatalogModel.objects.get(pk="a").context_length == 32_000
    assert {model.tokenizer for model in added} == {"o200k_base"}
    assert CatalogModel.objects.get(pk="c").context_length == 8_192
    assert run("sync_models", "vllm")["added"] == []
    assert "0 added" in say("sync_models", "vllm")


def test_sync_does_as_it_is_told(upstream: ModelListServer, key_variable: str) -> None:
    upstream.offer("Qwen3-8B")
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url,
        "--api-key-env", key_variable)  # fmt: skip

    outcome = run("sync_models", "vllm", "--enable", "--prefix", "acme/", "--prompt-per-million", "0.1",
                  "--completion-per-million", "0.2")  # fmt: skip

    assert outcome["added"] == ["acme/Qwen3-8B"]
    model = CatalogModel.objects.get()
    assert model.is_enabled
    assert model.price_version is not None
    assert model.price_version.card == PriceCard.flat(prompt=100_000, completion=200_000)
    assert (model.tokenizer, model.is_tokenizer_exact) == ("qwen3", True)
    assert Deployment.objects.get().upstream_id == "Qwen3-8B"
    path, headers = upstream.asked[0]
    assert (path, headers["authorization"]) == ("/v1/models", f"Bearer {SECRET}")


def test_sync_skips_what_cannot_be_asked_for(upstream: ModelListServer) -> None:
    upstream.offer(
        "", "x" * 201, "a b", "\0", "//", {"id": 5}, {"id": "huge", "context_length": 10**12}, "ok"
    )
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url)

    outcome = run("sync_models", "vllm")

    assert outcome["added"] == ["ok"]
    assert len(outcome["skipped"]) == 6


def test_an_anthropic_list_is_asked_its_own_way(upstream: ModelListServer, key_variable: str) -> None:
    upstream.offer("claude")
    run("add_backend", "claude", "--kind", "anthropic", "--base-url", upstream.base_url,
        "--api-key-env", key_variable)  # fmt: skip

    assert run("sync_models", "claude")["added"] == ["claude"]
    path, headers = upstream.asked[0]
    assert path == "/v1/models?limit=1000"
    assert headers["x-api-key"] == SECRET
    assert "authorization" not in headers


def test_probing_notes_who_is_there(upstream: ModelListServer) -> None:
    run("add_backend", "good", "--kind", "openai", "--base-url", upstream.base_url)
    run("add_backend", "gone", "--kind", "openai", "--base-url", f"http://127.0.0.1:{free_port()}/v1")
    run("add_backend", "off", "--kind", "openai", "--base-url", f"http://127.0.0.1:{free_port()}/v1")
    run("add_backend", "simulator", "--kind", "simulator")
    Backend.objects.filter(name="off").update(is_enabled=False)

    with pytest.raises(CommandError, match="Something is wrong"):
        run("probe_backends")

    found = {row.name: row for row in Backend.objects.all()}
    assert found["good"].probe_problem == found["simulator"].probe_problem == ""
    assert "cannot be reached" in found["gone"].probe_problem
    assert found["good"].probed_at
    assert found["off"].probed_at is None

    Backend.objects.filter(name="gone").update(is_enabled=False)
    outcome = run("probe_backends")
    assert outcome["ready"]
    assert [each["name"] for each in outcome["backends"]] == ["good", "simulator"]


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (401, {}, "refuses the API key"),
        (404, {}, "lack /v1"),
        (500, {}, "status 500"),
        (302, {}, "status 302"),
        (200, b"<html>", "not a list"),
        (200, {"data": "x"}, "not a list"),
        (200, [], "not a list"),
        (200, b"\xff\xfe", "not a list"),
        (200, b"[" * 100_000, "not a list"),
    ],
)
def test_a_probe_says_what_is_wrong_and_repeats_nothing(
    upstream: ModelListServer, key_variable: str, status: int, body: Any, problem: str
) -> None:
    upstream.status, upstream.body = status, body
    upstream.headers = {"Location": "http://127.0.0.1:1/secret"}
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url,
        "--api-key-env", key_variable)  # fmt: skip

    with pytest.raises(CommandError):
        run("probe_backends")

    told = Backend.objects.get().probe_problem
    assert problem in told
    assert SECRET not in told
    assert len(upstream.asked) == 1


def test_a_list_without_end_is_not_read_to_it(
    upstream: ModelListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_list, "MAX_BYTES", 1_000)
    upstream.offer("m" * 2_000)
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url)

    with pytest.raises(CommandError):
        run("probe_backends")

    assert "too large" in Backend.objects.get().probe_problem


def test_the_schedule_probes_too(upstream: ModelListServer) -> None:
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url)
    upstream.status = 500

    probe_backends()

    assert Backend.objects.get().probe_problem == "It answers with status 500."
    scheduled = [row["task"] for row in settings.CELERY_BEAT_SCHEDULE.values()]
    assert probe_backends.name in scheduled


def test_a_list_of_hosts_that_makes_no_sense_fails_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_BACKEND_HOSTS", "api.openai.com, 10.0.0.0/99")

    with pytest.raises(ImproperlyConfigured, match=r"GATEWAY_BACKEND_HOSTS holds '10\.0\.0\.0/99'"):
        env.hosts_and_networks("GATEWAY_BACKEND_HOSTS")


def test_a_name_that_resolves_to_a_refused_address_is_not_asked(
    upstream: ModelListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = upstream.base_url.rpartition(":")[2]
    run("add_backend", "vllm", "--kind", "openai", "--base-url", f"http://rebound.example:{port}")

    async def resolve(self: Any, host: str, port: int) -> list[str]:
        return ["0.0.0.0"]  # noqa: S104 - refused, and yet it would reach the server of this test

    monkeypatch.setattr("gateway_site.http_client.ssrf_guard.SystemResolver.resolve", resolve)

    with pytest.raises(CommandError):
        run("probe_backends")

    assert "cannot be reached" in Backend.objects.get().probe_problem
    assert upstream.asked == []
