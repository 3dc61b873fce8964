"""A kind of backend that exists only here: one module and one row, and every door knows it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError
from django.test import Client
from django.urls import reverse

from inference.backends.kinds import KINDS, BackendKind, BackendOption
from inference.models import Backend
from tests.harness.commands import run
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer, text_of
from tests.inference.dialects.messages.customer import count, tokens_of

MODULE = """
from inference.backends.base import InferenceBackend
from inference.events import Finish, TextDelta, Usage


class ToyBackend(InferenceBackend):
    lacks = frozenset({"seed"})

    def __init__(self, config):
        self.greeting = config.options.get("greeting", "Hello")
        self.mood = config.options.get("mood", "calm")

    async def generate(self, prompt, *, model, dispatch):
        await dispatch()
        yield TextDelta(0, f"{self.greeting} from {model}, {self.mood}")
        yield Finish(0, "stop")
        yield Usage(5, 7)

    async def count_tokens(self, body, encode):
        return 1_000 + len(body["messages"])
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package and the row of a kind `toy`."""
    (tmp_path / "toy_backend.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    row = BackendKind(
        label="Toy box",
        make=importlib.import_module("toy_backend").ToyBackend,
        options=(
            BackendOption("greeting", label="Greeting words", help="What the toy says first."),
            BackendOption("mood", label="Mood", help="How.", choices=("calm", "wild"), default="calm"),
        ),
        has_address=False,
        has_credential=False,
        has_model_list=False,
    )
    monkeypatch.setitem(KINDS, "toy", row)
    yield
    sys.modules.pop("toy_backend")


@pytest.fixture
def console(db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="x"))
    return client


def add_page(console: Client) -> str:
    return console.get(reverse("admin:inference_backend_add")).content.decode()


def add(console: Client, **fields: str) -> str:
    answer = console.post(reverse("admin:inference_backend_add"), {"name": "box", **fields}, follow=True)
    return answer.content.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_answered_and_charged(toy: None, customer: ApiCustomer, stream: bool) -> None:
    backend = make_backend("box", "toy", options={"greeting": "Ahoy", "mood": "wild"})
    deploy(make_model("toy/one", **COLUMNS), backend, "one")

    answer = customer.ask("toy/one", stream=stream)
    refused = customer.ask("toy/one", seed=1)

    assert text_of(answer) == "Ahoy from one, wild"
    assert (refused.status, refused.json["error"]["param"]) == (501, "seed")
    reservation = customer.reservation()
    assert reservation.charged_nanousd == (5 * 1_000 + 7 * 2_000) // 1_000
    assert_books_balance()


def test_its_own_count_of_tokens_is_believed(toy: None, customer: ApiCustomer) -> None:
    deploy(make_model("toy/one", **COLUMNS), make_backend("box", "toy"), "one")

    assert tokens_of(count(customer, "toy/one")) == 1_001


@pytest.mark.django_db
def test_the_command_takes_its_kind_and_its_options(toy: None) -> None:
    added = run("add_backend", "box", "--kind", "toy", "--greeting", "Ahoy")
    run("add_backend", "box", "--kind", "toy", "--mood", "wild")

    assert (added["kind"], added["created"]) == ("toy", True)
    assert Backend.objects.get().options == {"greeting": "Ahoy", "mood": "wild"}
    assert run("probe_backends")["ready"]
    with pytest.raises(CommandError, match="--mood is for backends of the kind toy"):
        run("add_backend", "other", "--kind", "simulator", "--mood", "wild")
    with pytest.raises(CommandError, match="invalid choice: 'grim'"):
        run("add_backend", "other", "--kind", "toy", "--mood", "grim")


def test_the_console_shows_its_label_and_its_options_and_saves_them(toy: None, console: Client) -> None:
    page = add_page(console)
    for words in ("Toy box", "Greeting words", "What the toy says first."):
        assert words in page

    add(console, kind="toy", option_greeting="Ahoy", option_mood="wild")

    backend = Backend.objects.get()
    assert (backend.kind, backend.options) == ("toy", {"greeting": "Ahoy", "mood": "wild"})
    listing = reverse("admin:inference_backend_changelist")
    assert "Toy box" in console.get(listing).content.decode()
    assert "box" in console.get(listing, {"kind__exact": "toy"}).content.decode()
    again = console.get(reverse("admin:inference_backend_change", args=[backend.pk])).content.decode()
    assert 'value="Ahoy"' in again


def test_the_console_saves_what_the_command_does(toy: None, console: Client) -> None:
    add(console, kind="toy", option_greeting="Ahoy", option_mood="")
    run("add_backend", "other", "--kind", "toy", "--greeting", "Ahoy")

    first, second = Backend.objects.order_by("name").values("kind", "base_url", "options", "is_enabled")
    assert (
        first
        == second
        == {"kind": "toy", "base_url": "", "options": {"greeting": "Ahoy"}, "is_enabled": True}
    )


def test_options_of_another_kind_are_refused_and_stay(toy: None, console: Client) -> None:
    backend = make_backend("box", "toy", options={"greeting": "Ahoy"})
    page = reverse("admin:inference_backend_change", args=[backend.pk])

    said = console.post(
        page, {"kind": "simulator", "option_greeting": "Ahoy", "is_enabled": "on"}, follow=True
    )

    assert "Simulator has no such option" in said.content.decode()
    backend.refresh_from_db()
    assert (backend.kind, backend.options) == ("toy", {"greeting": "Ahoy"})


@pytest.mark.django_db
def test_without_its_row_nothing_breaks_and_the_probe_says_why(
    toy: None, monkeypatch: Any, console: Client
) -> None:
    backend = make_backend("box", "toy")
    monkeypatch.delitem(KINDS, "toy")

    with pytest.raises(CommandError):
        run("probe_backends")

    backend.refresh_from_db()
    assert backend.probe_problem == "There is no kind of backend named 'toy'."
    for name, *row in (("changelist",), ("change", backend.pk)):
        assert console.get(reverse(f"admin:inference_backend_{name}", args=row)).status_code == 200
