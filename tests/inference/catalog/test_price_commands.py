"""Operators set prices from the command line: per million tokens, as versions, asked about if implausible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from billing.models import PriceVersion
from billing.prices import versions
from billing.prices.card import PriceCard
from billing.prices.parts import PARTS
from inference.catalog import price_file
from inference.models import CatalogModel
from organization.models import AuditEvent
from tests.harness.commands import run, say
from tests.inference.catalog.factories import make_backend
from tests.inference.catalog.model_list_server import ModelListServer, model_list_server

pytestmark = pytest.mark.django_db

USUAL = ("--prompt-per-million", "3", "--completion-per-million", "15")
LONG_PROMPTS = {
    "prompt": {"price": "3", "tiers": [{"over": 200_000, "price": "6"}]},
    "completion": {"price": "15", "tiers": [{"over": 200_000, "price": "22.5"}]},
    "cached": "0.3",
}


@pytest.fixture(autouse=True)
def _backend(db: None) -> None:
    make_backend("sim")


@pytest.fixture
def upstream() -> Iterator[ModelListServer]:
    with model_list_server() as server:
        yield server


def add_model(*words: str, name: str = "m") -> dict[str, Any]:
    return run("add_model", name, "--backend", "sim", *words)


def card_of(model: str = "m") -> PriceCard:
    version = versions.in_force_for(model)
    assert version is not None
    return version.card


def written(folder: Path, content: Any, name: str = "prices.json") -> str:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / name)


# --- add_model and sync_models ------------------------------------------------------------------------


def test_prices_are_given_per_million_tokens() -> None:
    made = add_model(*USUAL, "--cached-per-million", "0.3", "--image-price", "0.002", "--image-tokens", "900")

    version = PriceVersion.objects.get()
    assert card_of().rates["prompt"].picousd == 3_000_000
    assert made["card"] == {
        "prompt": "3",
        "completion": "15",
        "cached": "0.3",
        "image": "0.002",
        "image_tokens": 900,
        "file_tokens": 50_000,
        "web_searches": 0,
    }
    # As clients read them: per token.
    assert made["pricing"] == {
        "prompt": "0.000003",
        "completion": "0.000015",
        "cached": "0.0000003",
        "image": "0.002",
    }
    assert (made["price_version"], made["is_priced"]) == (str(version.pk), True)
    assert made["valid_from"] == version.valid_from.isoformat()
    assert version.source == "manage.py add_model"


def test_a_person_is_shown_the_prices_the_version_and_since_when() -> None:
    shown = say("add_model", "m", "--backend", "sim", *USUAL)

    version = PriceVersion.objects.get()
    assert f"version {version.pk}, from {version.valid_from.isoformat()}" in shown
    assert "  prompt: $3 per million tokens\n  completion: $15 per million tokens" in shown
    assert "no price" in say("add_model", "none", "--backend", "sim")


def test_every_token_part_has_both_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        say("add_model", "--help")

    shown = capsys.readouterr().out
    for part in PARTS:
        option = part.name.replace("_", "-")
        assert f"--{option}-price" in shown
        assert (f"--{option}-per-million" in shown) == part.is_per_token


def test_what_is_not_named_stays_and_nothing_new_is_no_version() -> None:
    first = add_model(*USUAL, "--cached-per-million", "0.3")

    dearer = add_model("--prompt-per-million", "4")
    again = add_model("--prompt-per-million", "4")

    assert (dearer["card"]["prompt"], dearer["card"]["cached"]) == ("4", "0.3")
    assert first["price_version"] != dearer["price_version"] == again["price_version"]
    assert PriceVersion.objects.count() == 2


def test_prices_that_nobody_named_are_those_of_what_they_are_charged_as() -> None:
    add_model(*USUAL)

    price = card_of().price_for(0)
    assert (price.cached, price.image, price.request) == (price.prompt, 0, 0)


def test_a_card_with_tiers_comes_from_a_file(tmp_path: Path) -> None:
    made = add_model("--card", written(tmp_path, LONG_PROMPTS))

    assert made["card"]["completion"] == LONG_PROMPTS["completion"]
    assert card_of().price_for(200_001).prompt == 6_000_000
    with pytest.raises(CommandError, match="give no other prices with it"):
        add_model("--card", written(tmp_path, LONG_PROMPTS), "--prompt-per-million", "3")
    broken = written(
        tmp_path, {**LONG_PROMPTS, "cached": {"price": "3", "tiers": [{"over": "x", "price": "6"}]}}
    )
    with pytest.raises(CommandError, match=r"prices\.json: cached\.tiers\[0\]\.over: Must be a whole number"):
        add_model("--card", broken)


def test_prices_may_be_set_for_later() -> None:
    add_model(*USUAL)
    later = (timezone.now() + timedelta(days=30)).replace(microsecond=0)

    scheduled = add_model("--prompt-per-million", "2", "--valid-from", later.isoformat())

    assert datetime.fromisoformat(scheduled["valid_from"]) == later
    assert scheduled["card"]["prompt"] == "2"
    assert card_of().rates["prompt"].picousd == 3_000_000
    in_force_then = versions.in_force_for("m", later)
    assert in_force_then is not None
    assert in_force_then.card.rates["prompt"].picousd == 2_000_000


def test_a_model_whose_prices_begin_later_is_not_served_yet() -> None:
    shown = say("add_model", "m", "--backend", "sim", *USUAL, "--valid-from", "2090-01-01")

    assert "no price in force yet and is not served until it has" in shown
    assert versions.in_force_for("m") is None
    assert PriceVersion.objects.get().valid_from == datetime(2090, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "words",
    [
        ("--prompt-price", "3", "--completion-price", "15"),
        ("--prompt-per-million", "0.000003", "--completion-per-million", "0.000015"),
    ],
)
def test_a_price_of_the_other_unit_asks(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="Are the prices of m right") as refusal:
        add_model(*words)

    assert "\n" not in str(refusal.value)
    assert not CatalogModel.objects.exists()

    add_model(*words, "--yes")
    assert versions.in_force_for("m") is not None


def test_a_price_ten_times_as_high_asks() -> None:
    add_model(*USUAL)

    with pytest.raises(CommandError, match=r"prompt: from \$3 to \$30 .* factor of 10"):
        add_model("--prompt-per-million", "30", "--completion-per-million", "30")

    assert card_of().rates["prompt"].picousd == 3_000_000


def test_sync_prices_its_new_models_and_asks_first(upstream: ModelListServer) -> None:
    upstream.offer("a", "b")
    run("add_backend", "vllm", "--kind", "openai", "--base-url", upstream.base_url)

    with pytest.raises(CommandError, match="Are the prices right"):
        run("sync_models", "vllm", "--prompt-price", "3", "--completion-price", "15")
    assert not CatalogModel.objects.exists()
    shown = say("sync_models", "vllm", *USUAL)

    assert "prompt $3 per million tokens; completion $15 per million tokens" in shown
    assert card_of("a") == card_of("b") == PriceCard.flat(prompt=3_000_000, completion=15_000_000)


def test_the_audit_trail_has_prices_per_million() -> None:
    add_model(*USUAL)
    add_model("--prompt-per-million", "4")

    event = AuditEvent.objects.get(action="price.change")
    assert (event.details["prices"]["prompt"], event.details["before"]["prompt"]) == ("4", "3")
    assert event.details["model"] == "m"


# --- import_prices and export_prices ------------------------------------------------------------------


def test_a_file_of_prices_is_imported_at_once(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add_model(name=name)
    add_model(*USUAL, name="b")
    add_model(*USUAL, name="c")
    file = {
        "models": {
            "a": {"prices": LONG_PROMPTS},
            "b": {"prices": {"prompt": "4", "completion": "15"}, "valid_from": "2090-01-01T00:00:00Z"},
            "c": {"prices": {"prompt": "3", "completion": 15}},
        }
    }

    outcome = run("import_prices", written(tmp_path, file))

    assert (outcome["new"], outcome["changed"], outcome["same"]) == (1, 1, 1)
    assert [each["state"] for each in outcome["models"]] == ["new", "changed", "same"]
    assert outcome["models"][1]["changes"] == ["prompt: $3 per million tokens → $4 per million tokens"]
    version = PriceVersion.objects.get(pk=outcome["models"][1]["version"])
    assert (version.source, version.valid_from) == ("import prices.json", datetime(2090, 1, 1, tzinfo=UTC))
    assert card_of("a").thresholds == [200_000]
    assert card_of("b").rates["prompt"].picousd == 3_000_000
    assert PriceVersion.objects.filter(model="c").count() == 1


def test_a_dry_run_shows_everything_and_stores_nothing(tmp_path: Path) -> None:
    add_model(*USUAL)
    file = written(tmp_path, {"models": {"m": {"prices": {"prompt": "3000", "completion": "15000"}}}})
    events = AuditEvent.objects.count()

    shown = say("import_prices", file, "--dry-run")

    assert "prompt: $3 per million tokens → $3000 per million tokens" in shown
    assert "implausible: prompt: $3000 per million tokens is more than $1000" in shown
    assert "0 new, 1 changed, 0 same. Nothing was stored" in shown
    assert (PriceVersion.objects.count(), AuditEvent.objects.count()) == (1, events)


def test_an_import_is_all_or_nothing(tmp_path: Path) -> None:
    add_model()
    good = {"prices": {"prompt": "3", "completion": "15"}}
    implausible = {"prices": {"prompt": "3000000", "completion": "15000000"}}
    add_model(name="n")

    with pytest.raises(CommandError, match=r"no such models: ghost, spectre\. Nothing was changed"):
        run("import_prices", written(tmp_path, {"models": {"m": good, "ghost": good, "spectre": good}}))
    file = written(tmp_path, {"models": {"m": good, "n": implausible}})
    with pytest.raises(CommandError, match=r"Are the prices right\? n: prompt: \$3000000"):
        run("import_prices", file)
    assert not PriceVersion.objects.exists()

    assert run("import_prices", file, "--yes")["new"] == 2


def test_what_is_exported_and_imported_changes_nothing(tmp_path: Path) -> None:
    add_model(name="unpriced")
    add_model("--card", written(tmp_path, LONG_PROMPTS, "card.json"))
    add_model("--prompt-per-million", "2", "--valid-from", "2090-01-01")
    add_model(*USUAL, "--web-search-price", "0.01", "--web-searches", "5", "--image-tokens", "7", name="n")
    events, stored = AuditEvent.objects.count(), PriceVersion.objects.count()

    exported = say("export_prices")
    outcome = run("import_prices", written(tmp_path, exported))

    assert set(json.loads(exported)["models"]) == {"m", "n"}
    assert run("export_prices") == json.loads(exported)
    assert (outcome["new"], outcome["changed"], outcome["same"]) == (0, 0, 2)
    assert (AuditEvent.objects.count(), PriceVersion.objects.count()) == (events, stored)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "an object with one key"),
        ({"models": {}, "more": 1}, "an object with one key"),
        ({"models": {}}, "models: Must be an object with 1 to"),
        ({"models": {"m": []}}, r"models\.m: Must be an object of prices"),
        ({"models": {"m": {"prices": {}, "from": 1}}}, r"models\.m: Must be an object of prices"),
        ({"models": {"m": {"prices": {}}}}, r"models\.m\.prices: The price of the prompt is missing"),
        ({"models": {"m": {"prices": {"prompt": 0.3}}}}, r"models\.m\.prices\.prompt: A JSON number"),
        ('{"models": {"m": {}, "m": {}}}', "twice|duplicate|more than once"),
        (
            {"models": {"m": {"prices": {"prompt": "3", "completion": "15"}, "valid_from": "2026-12-01"}}},
            r"models\.m\.valid_from: Must be a time with its zone",
        ),
        (
            {"models": {"m": {"prices": {"prompt": "3", "completion": "15"}, "valid_from": 7}}},
            r"models\.m\.valid_from: Must be a time with its zone",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, content: Any, complaint: str) -> None:
    add_model()

    with pytest.raises(CommandError, match=complaint):
        run("import_prices", written(tmp_path, content))
    assert not PriceVersion.objects.exists()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_file, "MAX_FILE_BYTES", 100)

    with pytest.raises(CommandError, match="more than 100 bytes"):
        run("import_prices", written(tmp_path, " " * 101))
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        run("import_prices", str(tmp_path / "none.json"))
