"""People compare the catalog's prices with the public list in the console, and apply what they choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from billing.models import PriceVersion
from billing.prices.card import PriceCard
from billing.prices.versions import add_version, in_force_for
from inference.catalog.price_lists import genai_list, reader_process, synchronization
from organization.models import AuditEvent
from tests.factories import SOMEONE
from tests.gateway_site.console.clients import customer, person
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.catalog.price_lists.listed_rows import ACME, plain, price_list

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
PAGE = "/admin/prices/"


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A list of two rows, read here: the process that reads it otherwise has the library's own."""
    monkeypatch.setattr(reader_process, "answer", genai_list.answer)
    with price_list({"claude": plain("3"), "gpt": plain("1", "4")}):
        yield


@pytest.fixture
def catalog(db: None) -> None:
    backend = make_backend("acme", "openai", base_url=ACME)
    for name in ("claude", "gpt", "unlisted"):
        deploy(make_model(name, prices=None), backend)
    card = PriceCard.flat(prompt=2_000_000, completion=15_000_000)
    add_version(model="claude", card=card, source="typed", actor=SOMEONE)


def digest_on(client: Client) -> str:
    digest = client.get(PAGE).context["comparison"].digest
    assert isinstance(digest, str)
    return digest


def prompt_price(model: str) -> int | None:
    version = in_force_for(model)
    return version.card.price_for(1).prompt if version else None


def test_it_works(console: Client, catalog: None) -> None:
    shown = console.get(PAGE).content.decode()
    form = {"digest": digest_on(console), "chosen": ["claude"]}
    asked_again = console.post(PAGE, form)
    assert prompt_price("claude") == 2_000_000
    done = console.post(PAGE, {**form, "confirmed": "yes"}, follow=True)

    assert "prompt: $2 → $3 per million tokens (+50 %)" in shown
    assert "No row of the list fits its deployments or its id." in shown
    assert "A price changes by more than 20 %." in asked_again.content.decode()
    assert "New prices: claude." in done.content.decode()
    assert [prompt_price("claude"), prompt_price("gpt")] == [3_000_000, None]
    event = AuditEvent.objects.get(action="price.change", actor_kind="staff")
    assert (event.actor_label, event.details["source"]) == ("ada", f"{genai_list.NAME} acme/claude")


@pytest.mark.parametrize("step", [{}, {"confirmed": "yes"}])
def test_what_was_not_shown_is_not_applied(console: Client, catalog: None, step: dict[str, str]) -> None:
    form = {"digest": digest_on(console), "chosen": ["gpt"], **step}
    card = PriceCard.flat(prompt=2_500_000, completion=15_000_000)
    add_version(model="claude", card=card, source="typed", actor=SOMEONE)

    answer = console.post(PAGE, form)

    assert answer.status_code == 409
    assert "Nothing was applied: choose again." in answer.content.decode()
    assert prompt_price("gpt") is None


@pytest.mark.parametrize("chosen", [[], ["unlisted"], ["claude", "nothing"]])
def test_what_cannot_be_applied_is_not(console: Client, catalog: None, chosen: list[str]) -> None:
    answer = console.post(PAGE, {"digest": digest_on(console), "chosen": chosen, "confirmed": "yes"})

    assert answer.status_code in (400, 409)
    assert PriceVersion.objects.count() == 1


def test_applied_twice_it_changes_prices_once(console: Client, catalog: None) -> None:
    form = {"digest": digest_on(console), "chosen": ["claude", "gpt"], "confirmed": "yes"}

    assert console.post(PAGE, form).status_code == 302
    assert console.post(PAGE, form).status_code == 409
    assert PriceVersion.objects.count() == 3


def test_only_those_who_may_change_models_get_in(catalog: None) -> None:
    reader = person("inference.view_catalogmodel")

    assert [reader.get(PAGE).status_code, reader.post(PAGE).status_code] == [403, 403]
    assert customer().get(PAGE).status_code == 302
    assert PriceVersion.objects.count() == 1


def test_a_post_without_its_token_is_refused(console: Client, catalog: None) -> None:
    form = {"digest": digest_on(console), "chosen": ["claude"], "confirmed": "yes"}
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = console.cookies

    assert strict.post(PAGE, form).status_code == 403
    assert prompt_price("claude") == 2_000_000


def test_without_the_library_the_page_says_how_to_install_it(
    console: Client, catalog: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synchronization, "LIBRARY", "not_installed_here")

    answer = console.get(PAGE)

    assert answer.status_code == 200
    assert "pip install &quot;genai-prices&gt;=0.2.1&quot;" in answer.content.decode()
