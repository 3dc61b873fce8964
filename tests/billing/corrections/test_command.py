"""What an operator types to rate a period again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import CommandError

from billing.models import Correction, PriceVersion
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from tests.billing.corrections.priced_requests import A_DAY, UsedAt, add_card, first_day, settle_at
from tests.billing.factories import Customer, make_customer
from tests.harness.commands import run, say


@pytest.fixture
def customer(transactional_db: None) -> Customer:
    return make_customer(credit=10**9)


@pytest.fixture
def wrong(customer: Customer) -> PriceVersion:
    """The version by which the customer has paid $0.000002."""
    version = add_card(PriceCard.flat(prompt=20_000, completion=0))
    settle_at([customer], version, UsedAt(first_day() + timedelta(hours=5), Quantities(prompt=100)))
    return version


def period() -> list[str]:
    # Without a zone a time is UTC, and a day is its midnight.
    return ["--from", f"{first_day():%Y-%m-%d}", "--to", f"{first_day() + A_DAY:%Y-%m-%dT%H:%MZ}"]


def test_a_period_is_tried_and_then_rated_again(customer: Customer, wrong: PriceVersion) -> None:
    add_card(PriceCard.flat(prompt=2_000, completion=0))

    tried = run("rerate", "gpt", *period(), "--dry-run")
    done = run("rerate", "gpt", *period(), "--reason", "a digit too many")
    again = run("rerate", "gpt", *period())

    figures = {
        "requests": 1,
        "changed": 1,
        "before_usd": "0.000002",
        "after_usd": "0.0000002",
        "difference_usd": "-0.0000018",
        "uncollected_usd": "0",
    }
    expected = {
        "dry_run": True,
        "correction_id": None,
        **figures,
        "organizations": [{"id": str(customer.organization.pk), **figures}],
        "skipped": 0,
        "skipped_requests": [],
        "still_open": 0,
    }
    assert tried == expected
    correction = Correction.objects.get()
    assert done == {**expected, "dry_run": False, "correction_id": str(correction.pk)}
    assert (correction.reason, correction.actor) == ("a digit too many", "manage.py rerate")
    assert (again["changed"], again["correction_id"]) == (0, None)


def test_it_says_what_it_did(customer: Customer, wrong: PriceVersion) -> None:
    named = add_card(PriceCard.flat(prompt=2_000, completion=0), valid_from=first_day() + 30 * A_DAY)
    owner = ["--organization", customer.organization.name]

    tried = say("rerate", "gpt", *period(), *owner, "--version", str(named.pk), "--dry-run")
    done = say("rerate", "gpt", *period(), *owner, "--version", str(named.pk))

    figures = "1 of 1 requests: $0.000002 before, $0.0000002 after, difference -$0.0000018"
    assert tried.splitlines()[0] == f"Would change {figures}."
    assert done.splitlines() == [f"Changed {figures}.", f"  {customer.organization.pk}: {figures}"]


def test_a_version_that_begins_too_early_to_count_is_explained(
    customer: Customer, wrong: PriceVersion
) -> None:
    add_card(PriceCard.flat(prompt=2_000, completion=0), valid_from=wrong.valid_from - A_DAY)

    done = say("rerate", "gpt", *period())

    assert done.startswith("Changed 0 of 1 requests")
    assert "begins earlier than the version in force replaces it only where it is named" in done


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["gpt", "--from", "yesterday", "--to", "2026-01-01"], "'yesterday' is not a time such as"),
        (["gpt", "--from", "2026-01-02", "--to", "2026-01-01"], "must begin before it ends"),
        (["gpt", "--from", "2020-01-01"], "--to"),
        (["none", "--from", "2020-01-01", "--to", "2020-01-02"], "no price version of a model 'none'"),
        (
            ["gpt", "--from", "2020-01-01", "--to", "2020-01-02", "--version", "7"],
            "no price version with the",
        ),
        (["gpt", "--from", "2020-01-01", "--to", "2020-01-02", "--organization", "x"], "no organization"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: PriceVersion, words: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        run("rerate", *words)
