"""What is held for a request by its price card, and what a card has no price for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from billing.models import Reservation
from billing.prices.card import PriceCard
from billing.prices.versions import add_version
from tests.factories import SOMEONE
from tests.harness.error_checks import assert_error
from tests.inference.customer import ApiCustomer

CENT = 10_000_000
CARD = structs.replace(
    PriceCard.flat(prompt=1_000_000, completion=2_000_000, web_search=10**10), web_searches=3
)


@pytest.mark.parametrize(("fields", "searches"), [({}, 0), ({"web_search_options": {}}, 3)])
def test_searches_are_held_where_they_are_asked_for(
    customer: ApiCustomer, fields: dict[str, Any], searches: int
) -> None:
    customer.simulate("echo", prices=None)
    add_version(model="echo", card=CARD, source="typed", actor=SOMEONE)

    answer = customer.ask("echo", max_completion_tokens=10, **fields)

    assert answer.status == 200
    reservation = customer.reservation()
    assert reservation.bound_quantities.web_searches == searches
    assert (reservation.reserved_nanousd >= 3 * CENT) == bool(searches)
    # The simulator searches once.
    assert ((reservation.charged_nanousd or 0) >= CENT) == bool(searches)


@pytest.mark.parametrize("tier", ["auto", "default"])
def test_the_usual_tier_is_served(customer: ApiCustomer, tier: str) -> None:
    customer.simulate("echo")

    assert customer.ask("echo", service_tier=tier).status == 200


@pytest.mark.parametrize("tier", ["priority", "flex"])
def test_another_tier_is_refused_by_name_before_anything_is_held(customer: ApiCustomer, tier: str) -> None:
    customer.simulate("echo")

    answer = customer.ask("echo", service_tier=tier)

    assert_error(answer, 501, "unsupported_option", param="service_tier")
    assert not Reservation.objects.exists()
