"""Support reads the money on a receipt: prices and bounds, who ended the request, corrections."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone

from billing.corrections.requests import CorrectionScope
from billing.corrections.rerate import rerate
from billing.ledger.operations import MarkUnknown, Settle
from billing.models import ChargeBasis as Basis
from billing.models import EndedBy, Reservation
from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.hold import hold_amount
from billing.prices.price import Quantities
from billing.prices.versions import add_version
from inference.models import Activity
from tests.billing.factories import Customer, make_customer, version_of
from tests.billing.settled_requests import Usage as Used
from tests.billing.settled_requests import apply, settle
from tests.factories import SOMEONE
from tests.gateway_site.console.clients import owner, person
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.activity.factories import make_request
from tests.inference.admin.pages import HOSTILE, MONEY, read


def tiered_request(customer: Customer, ending: type[Settle] | type[MarkUnknown], *how: Any) -> Activity:
    card = PriceCard(
        {"prompt": Rate(1_000, (Tier(20, 2_000),)), "completion": Rate(5_000), "request": Rate(7_000)}
    )
    bounds = Quantities(prompt=40, completion=60)
    request = customer.request(
        hold_amount(card, bounds), version=version_of(card), bounds=bounds, request_id=uuid.uuid4()
    )
    day = timezone.now().date()
    apply(day, time(12), [request])
    apply(day, time(12, 0, 1), [ending(request.request_id, request.organization_id, *how)])
    return make_request(customer.key, id=request.request_id)


def test_it_says_by_which_prices_and_for_which_bounds(db: None) -> None:
    used = Quantities(prompt=30, completion=1)
    request = tiered_request(make_customer(credit=10**9), Settle, used, Basis.ESTIMATED, EndedBy.CLIENT)

    page = read(owner(), request)

    version = Reservation.objects.get().price_version
    for text in (
        "prompt over 20 tokens",
        "$0.002 per million tokens",
        "$0.000000007 per request",
        f'<code title="{version.pk}">{version.pk.hex[:8]}</code>',
        f"{version.valid_from:%Y-%m-%d %H:%M:%S} UTC",
        "<dd>tests</dd>",
        "40 prompt tokens, 60 completion tokens",
        "<dd>$0.000000387</dd>",
        "The client left before the first token: the prompt was charged, as counted here.",
        "the prompt alone, as counted here",
    ):
        assert text in page
    assert "Held at the end" not in page
    assert_books_balance()


def test_an_unknown_outcome_says_since_when_and_until_when(db: None) -> None:
    request = tiered_request(make_customer(credit=10**9), MarkUnknown, EndedBy.DEADLINE)

    page = read(owner(), request)

    since = Reservation.objects.get().unknown_at
    assert since is not None
    for text in (
        f"{since:%Y-%m-%d %H:%M:%S} UTC",
        f"{since + timedelta(minutes=10):%Y-%m-%d %H:%M:%S} UTC",
        "The deadline passed before the end: what the backend did by then is not known",
        "the hold is released by itself",
    ):
        assert text in page
    assert_books_balance()


def test_a_correction_is_there_with_old_new_and_difference(db: None) -> None:
    customer = make_customer(credit=10**9)
    yesterday = timezone.now().date() - timedelta(days=1)
    settle(Used(customer, yesterday, prompt=30, completion=20))
    request = make_request(customer.key, id=Reservation.objects.get().pk)
    ada = owner()
    assert "receipt-corrections" not in read(ada, request)
    starts_at = datetime.combine(yesterday, time(), UTC)
    version, _ = add_version(
        model="gpt",
        card=PriceCard.flat(prompt=1_000, completion=3_000),
        source="the right list",
        actor=SOMEONE,
        valid_from=starts_at,
    )
    scope = CorrectionScope("gpt", starts_at, starts_at + timedelta(days=1))
    rerate(scope, actor=SOMEONE, reason=HOSTILE)

    page = read(ada, request)

    assert HOSTILE not in page
    section = page.split('id="receipt-corrections"')[1]
    for text in (
        "$0.00000005<",
        "$0.00000009<",
        "+$0.00000004<",
        "completion +$0.00000004",
        "the right list",
    ):
        assert text in section
    assert '<td class="is-number">$0.00000009</td></tr></tfoot>' in page
    assert reverse("admin:billing_priceversion_change", args=[version.pk]) in section
    # Who sees money, and no corrections, sees what stands now.
    page = read(person("inference.view_activity", *MONEY), request)
    assert '<td class="is-number">$0.00000009</td></tr></tfoot>' in page
    assert "receipt-corrections" not in page
    assert_books_balance()


def test_a_price_version_is_a_link_for_those_who_may_read_it(db: None) -> None:
    request = tiered_request(make_customer(credit=10**9), Settle, Quantities(prompt=30, completion=1))
    version_id = Reservation.objects.get().price_version_id
    address = reverse("admin:billing_priceversion_change", args=[version_id])

    assert f'href="{address}"' in read(owner(), request)
    page = read(person("inference.view_activity", *MONEY), request)
    assert address not in page
    assert version_id.hex[:8] in page


def test_the_reservation_says_the_same_in_short(db: None) -> None:
    used = Quantities(prompt=30, completion=1)
    request = tiered_request(make_customer(credit=10**9), Settle, used, Basis.OBSERVED, EndedBy.BACKEND)

    page = owner().get(reverse("admin:billing_reservation_change", args=[request.pk])).content.decode()

    for text in (
        "The backend refused, failed or was cut off: the prompt and what was generated by then were charged",
        "40 prompt tokens, 60 completion tokens",
        "30 prompt tokens, 1 completion token",
        f'title="{Reservation.objects.get().price_version_id}"',
    ):
        assert text in page
