"""Operators bring the catalog's prices up to date with a public list."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone
from genai_prices.types import StartDateConstraint, TimeOfDateConstraint
from msgspec import structs

from billing.models import PriceVersion
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.versions import add_version, history, in_force_for
from inference.catalog.price_lists import synchronization
from inference.models import CatalogModel
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.harness.commands import run, say
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.catalog.price_lists.listed_rows import (
    ACME,
    OTHER,
    dated,
    plain,
    price,
    price_list,
    tiered,
    with_priority,
)

pytestmark = pytest.mark.django_db

SOURCE = "genai-prices 0.2.1 acme/claude"


def add_model(
    model_id: str = "claude", upstream_id: str = "", base_url: str = ACME, card: PriceCard | None = None
) -> CatalogModel:
    model = make_model(model_id, prices=None)
    deploy(model, make_backend(base_url, "openai", base_url=base_url), upstream_id)
    if card:
        add_version(model=model_id, card=card, source="typed", actor=SOMEONE)
    return model


def only_row(outcome: dict[str, Any]) -> dict[str, Any]:
    (row,) = outcome["models"]
    assert isinstance(row, dict)
    return row


def card_now(model: str = "claude") -> PriceCard:
    version = in_force_for(model)
    assert version
    return version.card


def applied(*words: str) -> list[str]:
    found = run("sync_prices", "--apply", *words)["applied"]
    assert isinstance(found, list)
    return found


def test_it_works() -> None:
    add_model()
    rows = {"claude": price(input_mtok="3", output_mtok="15", cache_write_mtok="3.75")}

    with price_list(rows):
        shown = run("sync_prices")
        assert not PriceVersion.objects.exists()
        assert applied() == ["claude"]
        again = run("sync_prices", "--apply")

    assert (only_row(shown)["state"], only_row(again)["state"]) == ("new", "same")
    assert again["applied"] == []
    version = PriceVersion.objects.get()
    assert version.card == PriceCard.flat(prompt=3_000_000, completion=15_000_000, cache_write=3_750_000)
    assert (version.source, version.checksum) == (SOURCE, version.card.checksum)
    event = AuditEvent.objects.get(action="price.create")
    assert (event.actor_label, event.details["source"]) == ("manage.py sync_prices", SOURCE)


def test_a_changed_price_is_shown_from_old_to_new_with_its_percentage() -> None:
    add_model(card=PriceCard.flat(prompt=3_000_000, completion=15_000_000))
    add_model("stranger", "stranger", OTHER, card=PriceCard.flat(prompt=1_000_000, completion=2_000_000))

    with price_list({"claude": plain("3.3", "15")}):
        shown = run("sync_prices", "--only", "cl*")
        text = say("sync_prices")
        assert applied() == ["claude"]

    (change,) = only_row(shown)["versions"][0]["changes"]
    assert change["text"] == "prompt: $3 → $3.3 per million tokens (+10 %)"
    assert (change["from"], change["to"], change["percent"]) == ("3", "3.3", "+10 %")
    assert "prompt: $3 → $3.3 per million tokens (+10 %)" in " ".join(text.split())
    assert "1 changed, 1 unmatched. Nothing was applied" in text
    assert card_now().price_for(1).prompt == 3_300_000
    assert history("stranger").count() == 1


def test_a_change_of_more_than_a_fifth_or_an_implausible_price_needs_a_yes() -> None:
    add_model(card=PriceCard.flat(prompt=3_000_000, completion=15_000_000))
    add_model("dear", card=None)
    rows = {"claude": plain("3.61", "15"), "dear": plain("3000", "15000")}

    with price_list(rows):
        with pytest.raises(CommandError, match=r"claude \(needs --yes\); dear \(needs --yes\)"):
            run("sync_prices", "--apply")
        assert card_now().price_for(1).prompt == 3_000_000
        assert applied("--yes") == ["claude", "dear"]

    assert card_now().price_for(1).prompt == 3_610_000


def test_exactly_a_fifth_needs_no_yes() -> None:
    add_model(card=PriceCard.flat(prompt=3_000_000, completion=15_000_000))

    with price_list({"claude": plain("3.6", "12")}):
        assert applied() == ["claude"]


def test_tiers_and_what_a_hold_assumes_are_kept_apart() -> None:
    """The tiers are the list's; the tokens of an image and the number of searches are the operator's."""
    before = structs.replace(
        PriceCard.flat(prompt=3_000_000, completion=15_000_000, web_search=10**10),
        image_tokens=900, file_tokens=7, web_searches=4,
    )  # fmt: skip
    add_model(card=before)
    listed = plain("3", "15", web_searches_kcount="10")
    listed.input_mtok = tiered("3", 200_000, "6")  # type: ignore[attr-defined]

    with price_list({"claude": listed}):
        shown = only_row(run("sync_prices"))
        assert applied("--yes") == ["claude"]

    texts = [change["text"] for change in shown["versions"][0]["changes"]]
    assert "prompt over 200,000 tokens: $3 → $6 per million tokens (+100 %)" in texts
    rates = {**before.rates, "prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),))}
    assert card_now() == structs.replace(before, rates=rates)


def test_a_price_that_is_announced_becomes_a_version_of_its_day() -> None:
    add_model()
    today = timezone.now().date()
    soon, later = today + timedelta(days=20), today + timedelta(days=40)

    def rows(second: str, start: Any = soon) -> dict[str, Any]:
        past = StartDateConstraint(today - timedelta(days=9))
        return {
            "claude": dated(
                (None, plain("9")), (past, plain("3")), (StartDateConstraint(start), plain(second))
            )
        }

    with price_list(rows("3.2")):
        assert applied() == ["claude"]
        assert applied() == []
    first_day = datetime.combine(soon, time(), UTC)
    found = list(history("claude").values_list("valid_from", flat=True))
    assert found[0] == first_day
    assert len(found) == 2
    assert [card_now().price_for(1).prompt, prompt_at(first_day)] == [3_000_000, 3_200_000]

    # The list moves the day: the price of the first one is taken back.
    with price_list(rows("3.2", later)):
        assert applied() == ["claude"]
        assert applied() == []
    last_day = datetime.combine(later, time(), UTC)
    assert [prompt_at(first_day), prompt_at(last_day)] == [3_000_000, 3_200_000]


def prompt_at(moment: datetime) -> int:
    version = in_force_for("claude", moment)
    assert version
    return version.card.price_for(1).prompt


@pytest.mark.parametrize(
    ("prices", "reason"),
    [
        (plain(input_image_mtok="4"), "input_image_mtok is another price than input_mtok"),
        (plain(audio_hours="1"), "A card has no part for audio_hours."),
        (price(), "The list names the model without any price."),
        (price(input_mtok="1"), "The list has no output_mtok"),
        (plain("0.0000001"), "$1E-7 for 1,000,000 is finer than a pico-USD for one."),
        (
            dated((None, plain()), (TimeOfDateConstraint(time(1), time(2)), plain("4"))),
            "The price depends on the time of day.",
        ),
    ],
)
def test_a_price_that_no_card_can_say_is_refused_with_the_reason(prices: Any, reason: str) -> None:
    add_model()

    with price_list({"claude": prices}):
        row = only_row(run("sync_prices", "--apply", "--yes"))

    assert row["state"] == "refused"
    assert reason in row["reason"]
    assert not PriceVersion.objects.exists()


def test_what_costs_the_same_or_cannot_be_asked_for_is_no_reason_to_refuse() -> None:
    add_model()

    with price_list({"claude": plain(input_image_mtok="3", storage_searches_kcount="2.5")}):
        row = only_row(run("sync_prices"))

    assert row["state"] == "new"
    assert row["notes"] == [
        "The price of searches in stored files is left out: requests cannot ask for them here."
    ]


def test_a_service_tier_that_costs_more_is_named() -> None:
    add_model()

    with price_list({"claude": with_priority("claude", plain("3"), plain("6"))}):
        row = only_row(run("sync_prices"))

    assert row["state"] == "new"
    assert "other prices for the service_tier priority" in row["notes"][0]


def test_a_model_is_matched_by_its_deployments_then_by_its_id_and_never_by_a_guess() -> None:
    here, there = {"claude": plain("3"), "gpt": plain("1")}, {"claude": plain("4")}
    add_model("by-address", "claude-20261115")
    add_model("acme/gpt", "something", "https://proxy.example")
    both = add_model("both", "claude")
    deploy(both, make_backend(OTHER, "openai", base_url=OTHER), "claude")
    add_model("nobody", "something", "https://proxy.example")

    with price_list(here, there):
        outcome = run("sync_prices")

    found = {row["model"]: (row["state"], row["rows"]) for row in outcome["models"]}
    assert found == {
        "by-address": ("new", ["acme/claude"]),
        "acme/gpt": ("new", ["acme/gpt"]),
        "both": ("ambiguous", ["acme/claude", "other/claude"]),
        "nobody": ("unmatched", []),
    }


def test_a_match_that_was_named_is_kept_until_the_list_loses_it() -> None:
    add_model("mine", "unknown")

    with price_list({"claude": plain("3")}):
        assert applied("--match", "mine=acme/claude") == ["mine"]
    with price_list({"claude": plain("3.1"), "unknown": plain("9")}):
        assert only_row(run("sync_prices"))["rows"] == ["acme/claude"]
        assert applied() == ["mine"]
    with price_list({"unknown": plain("9")}):
        row = only_row(run("sync_prices", "--apply", "--yes"))

    assert (row["state"], row["reason"]) == ("vanished", "The list has no row acme/claude any more.")
    assert row["notes"] == ["Its deployments or its id fit acme/unknown now."]
    assert card_now("mine").price_for(1).prompt == 3_100_000


@pytest.mark.parametrize("word", ["claude", "claude=nothing", "claude=acme/none", "none=acme/claude"])
def test_a_match_that_names_nothing_is_refused(word: str) -> None:
    add_model()

    with price_list({"claude": plain()}), pytest.raises(CommandError):
        run("sync_prices", "--match", word)


# --- a second file --------------------------------------------------------------------------------------


@pytest.fixture
def second(tmp_path: Path) -> Path:
    rows = {
        "acme/claude": (
            '{"litellm_provider": "acme", "input_cost_per_token": 3.0000000000000001e-06, '
            '"output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07, '
            '"input_cost_per_token_above_200k_tokens": 6e-06}'
        ),
        "claude": '{"litellm_provider": "a stranger", "input_cost_per_token": 1, "output_cost_per_token": 1}',
    }
    path = tmp_path / "prices.json"
    path.write_text("{" + ", ".join(f"{json.dumps(key)}: {row}" for key, row in rows.items()) + "}")
    return path


@pytest.mark.parametrize("over", [200_000, 199_999])
def test_a_second_file_that_agrees_changes_nothing(second: Path, over: int) -> None:
    add_model()
    listed = plain(cache_read_mtok="0.3", cache_write_mtok="3.75")
    listed.input_mtok = tiered("3", over, "6")  # type: ignore[attr-defined]

    with price_list({"claude": listed}):
        assert applied("--second", str(second)) == ["claude"]


def test_what_two_lists_disagree_about_is_applied_only_to_a_model_that_is_named(second: Path) -> None:
    add_model()
    words = ("--second", str(second))

    with price_list({"claude": plain(cache_read_mtok="0.5")}):
        row = only_row(run("sync_prices", *words))
        for named in ((), ("--only", "cla*")):
            with pytest.raises(CommandError, match="the second file disagrees"):
                run("sync_prices", "--apply", "--yes", *words, *named)
        assert not PriceVersion.objects.exists()
        assert applied(*words, "--only", "claude") == ["claude"]

    assert row["state"] == "disagreeing"
    assert [each["text"] for each in row["disagreements"]] == [
        "cached prompt: $0.5 → $0.3 per million tokens (-40 %)",
        "prompt over 200,000 tokens: $3 → $6 per million tokens (+100 %)",
    ]


def test_a_model_that_the_second_file_lacks_is_no_disagreement(second: Path) -> None:
    add_model("other", "other")

    with price_list({"other": plain()}):
        row = only_row(run("sync_prices", "--second", str(second)))

    assert (row["state"], row["notes"]) == ("new", ["The second file has no row to compare."])


@pytest.mark.parametrize("content", [None, b"{", b"[]", b'{"a": {}}', b"[" * 200_000])
def test_a_file_that_is_not_the_one_that_is_meant_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prices.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CommandError, match=r"prices\.json"):
        run("sync_prices", "--second", str(path))


# --- without the extra ----------------------------------------------------------------------------------


def test_without_the_library_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synchronization, "LIBRARY", "not_installed_here")

    with pytest.raises(CommandError, match=r'pip install "genai-prices>=0\.2\.1"'):
        run("sync_prices")
