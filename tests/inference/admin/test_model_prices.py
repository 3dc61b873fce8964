"""Operators type prices per million tokens in the console, and see what a model cost and will cost."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.models import PriceVersion
from billing.prices import versions
from billing.prices.card import PriceCard, Rate, Tier
from inference.catalog import services
from inference.models import CatalogModel
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.gateway_site.console.factories import signed_in, someone
from tests.gateway_site.console.page_forms import form_on
from tests.inference.catalog.factories import make_model

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

USUAL = PriceCard.flat(prompt=3_000_000, completion=15_000_000)
LONG_PROMPTS = PriceCard(
    {
        "prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),)),
        "completion": Rate(15_000_000, (Tier(200_000, 22_500_000),)),
        "cached": Rate(300_000),
        "image": Rate(2_000_000_000),
    },
    image_tokens=1_600,
)
LIST = reverse("admin:inference_catalogmodel_changelist")


@pytest.fixture
def console() -> Client:
    return signed_in(get_user_model().objects.create_superuser("ada", password="x"))


@pytest.fixture
def model() -> CatalogModel:
    return make_model("m", prices={"prompt": 3_000_000, "completion": 15_000_000})


def page(model: CatalogModel) -> str:
    return reverse("admin:inference_catalogmodel_change", args=[model.pk])


def text_of(client: Client, address: str) -> str:
    """What the page says, without its markup."""
    return _text(client.get(address).content.decode())


def save(console: Client, model: CatalogModel, **typed: str) -> str:
    """Open the model's form, type, and save. Returns the text of the page that follows."""
    sent = {**form_on(console, page(model)), **typed}
    return _text(console.post(page(model), sent, follow=True).content.decode())


def confirmation_in(console: Client, model: CatalogModel, **typed: str) -> str:
    """What the box sends that is shown for implausible prices; empty where there is none."""
    sent = {**form_on(console, page(model)), **typed}
    shown = console.post(page(model), sent, follow=True).content.decode()
    box = re.search(r'<input type="checkbox" name="confirmed"[^>]*>', shown)
    found = re.search(r'value="(\w+)"', box[0]) if box else None
    return found[1] if found else ""


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def card_of(model: CatalogModel) -> PriceCard:
    version = versions.in_force_for(model.pk)
    assert version is not None
    return version.card


# --- typing -------------------------------------------------------------------------------------------


def test_prices_are_typed_per_million_tokens(console: Client, model: CatalogModel) -> None:
    shown = form_on(console, page(model))
    assert (shown["prompt"], shown["completion"], shown["cached"]) == ("3", "15", "")

    save(
        console,
        model,
        cached="0.3",
        image="0.002",
        tiers="over 200000: prompt 6, completion 22.5",
        image_tokens="1600",
    )

    assert card_of(model) == LONG_PROMPTS
    version = versions.history("m").first()
    assert version is not None
    assert version.source == "ada"
    event = AuditEvent.objects.latest("id")
    assert (event.action, event.details["prices"]["image"]) == ("price.change", "0.002")
    assert event.details["before"]["completion"] == "15"


def test_what_is_saved_untouched_stays_to_the_last_digit(console: Client) -> None:
    services.save_model(model_id="m", changes={}, card=LONG_PROMPTS, actor=SOMEONE)
    model = CatalogModel.objects.get()
    events = AuditEvent.objects.count()

    save(console, model)
    assert AuditEvent.objects.count() == events

    save(console, model, display_name="Small")
    assert card_of(model) == LONG_PROMPTS
    assert PriceVersion.objects.count() == 1


def test_a_price_that_is_emptied_is_gone_and_zero_is_a_price(console: Client) -> None:
    services.save_model(model_id="m", changes={}, card=LONG_PROMPTS, actor=SOMEONE)
    model = CatalogModel.objects.get()

    save(console, model, cached="", image="", tiers="", request="0")

    assert card_of(model).rates == {**USUAL.rates, "request": Rate(0)}


def test_prices_may_begin_later(console: Client, model: CatalogModel) -> None:
    later = (timezone.now() + timedelta(days=30)).replace(second=0, microsecond=0)

    save(console, model, prompt="4", valid_from=f"{later:%Y-%m-%dT%H:%M}")

    assert card_of(model) == USUAL
    scheduled = versions.in_force_for("m", later)
    assert scheduled is not None
    assert (scheduled.valid_from, scheduled.card.rates["prompt"].picousd) == (later, 4_000_000)
    assert f"in $3 · out $15 from {later:%Y-%m-%d %H:%M} UTC: in $4 · out $15" in text_of(console, LIST)


def test_a_scheduled_price_is_called_off_by_another_for_the_same_time(
    console: Client, model: CatalogModel
) -> None:
    later = "2090-01-01T00:00"
    save(console, model, prompt="4", valid_from=later)

    save(console, model, valid_from=later)

    version = versions.in_force_for("m", datetime(2090, 1, 1, tzinfo=UTC))
    assert version is not None
    assert version.card == USUAL
    assert PriceVersion.objects.count() == 3


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ({"completion": ""}, "A model with prices needs this one"),
        ({"prompt": "0.0000001"}, "finer than 6 decimal places"),
        ({"image": "-1"}, "not negative"),
        ({"tiers": "over 5: cached 1"}, "cached has a tier, and no price for shorter prompts"),
        ({"tiers": "long: prompt 6"}, "line 1: Must be such as"),
        ({"tiers": "\n".join(f"over {n}: prompt 3" for n in range(9))}, "at most 8 tiers"),
        ({"image_tokens": "-1"}, "greater than or equal to 0"),
        ({"valid_from": "2090-01-01T00:00"}, "nothing would change"),
        ({"prompt": "4", "valid_from": "1990-01-01T00:00"}, "in a year from 2000"),
    ],
)
def test_prices_that_cannot_be_are_refused(
    console: Client, model: CatalogModel, typed: dict[str, str], complaint: str
) -> None:
    assert complaint in save(console, model, **typed)
    assert card_of(model) == USUAL
    assert PriceVersion.objects.count() == 1


def test_an_old_page_sets_no_scheduled_price_back(console: Client, model: CatalogModel) -> None:
    opened = form_on(console, page(model))
    later = timezone.now() + timedelta(days=1)
    services.save_model(
        model_id="m", changes={}, prices={"prompt": 4_000_000}, valid_from=later, actor=SOMEONE
    )

    shown = console.post(page(model), {**opened, "prompt": "5"}, follow=True).content.decode()

    assert "Somebody else changed this" in shown
    assert card_of(model) == USUAL


# --- implausible prices -------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_implausible_price_asks_and_is_saved_once_confirmed(console: Client, model: CatalogModel) -> None:
    assert 'name="confirmed" value="' not in console.get(page(model)).content.decode()

    asked = save(console, model, prompt="0.000003", completion="0.000015")
    assert "These prices are right" in asked
    assert "prompt: $0.000003 per million tokens is less than $0.001 per million tokens." in asked
    assert "prompt: from $3 to $0.000003 per million tokens is a change by a factor of 10 or more." in asked
    assert card_of(model) == USUAL

    ticked = confirmation_in(console, model, prompt="0.000003", completion="0.000015")
    save(console, model, prompt="0.000003", completion="0.000015", confirmed=ticked)
    assert card_of(model) == PriceCard.flat(prompt=3, completion=15)


@pytest.mark.slow
def test_a_confirmation_is_of_the_prices_that_were_shown(console: Client, model: CatalogModel) -> None:
    ticked = confirmation_in(console, model, prompt="40")
    assert ticked

    assert "These prices are right" in save(console, model, prompt="4000", confirmed=ticked)
    assert "These prices are right" in save(console, model, prompt="4000", confirmed="on")
    assert card_of(model) == USUAL
    save(console, model, prompt="40", confirmed=ticked)
    assert card_of(model).rates["prompt"].picousd == 40_000_000


def test_plausible_prices_ask_nothing(console: Client, model: CatalogModel) -> None:
    assert confirmation_in(console, model, prompt="4") == ""
    assert card_of(model).rates["prompt"].picousd == 4_000_000


# --- reading ------------------------------------------------------------------------------------------


def test_the_versions_of_a_model_are_on_its_page(console: Client, model: CatalogModel) -> None:
    later = timezone.now() + timedelta(days=9)
    save(console, model, prompt="4")
    services.save_model(
        model_id="m", changes={}, prices={"prompt": 5_000_000}, valid_from=later, actor=SOMEONE
    )
    make_model("stranger", prices={"prompt": 7_777_000, "completion": 9_000_000})

    shown = text_of(console, page(model))

    panel = (
        shown[shown.index("Price versions Valid from") :] if "Price versions Valid from" in shown else shown
    )
    scheduled, in_force, replaced = (panel.index(words) for words in ("scheduled", "in force", "replaced"))
    assert scheduled < in_force < replaced
    for words in ("$5 per million tokens", "$4 per million tokens", "$3 per million tokens", "ada"):
        assert words in panel
    assert "7.777" not in panel
    assert versions.history("m")[0].checksum[:8] in panel


def test_a_version_has_a_page_and_nobody_edits_it(console: Client, model: CatalogModel) -> None:
    version = PriceVersion.objects.get()
    address = reverse("admin:billing_priceversion_change", args=[version.pk])

    shown = text_of(console, address)

    for words in ("prompt: $3 per million tokens", "in force", version.checksum, "image tokens: 1,700"):
        assert words in shown
    assert console.post(address, {"source": "mine"}).status_code == 403
    assert console.get(reverse("admin:billing_priceversion_add")).status_code == 403
    listed = text_of(console, reverse("admin:billing_priceversion_changelist") + "?model__exact=m")
    assert "completion: $15 per million tokens" in listed


def test_who_may_only_look_sees_the_prices_in_words(model: CatalogModel) -> None:
    services.save_model(model_id="m", changes={}, card=LONG_PROMPTS, actor=SOMEONE)
    reader = signed_in(someone("Read-only"))

    shown = text_of(reader, page(model))

    assert "in $3 · out $15, tiers" in shown
    assert "prompt: $3 per million tokens, over 200,000: $6" in shown
    assert "image: $0.002 per image" in shown
    assert "image tokens: 1,600" in shown
    assert "Price versions" in shown
    assert 'name="prompt"' not in reader.get(page(model)).content.decode()


def test_a_model_without_a_price_says_so(console: Client) -> None:
    make_model("m", prices=None)

    shown = text_of(console, LIST)

    assert "no price" in shown
    assert "not set" in shown
