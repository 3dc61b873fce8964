"""A service tier that costs otherwise is refused, because a price card has one price for all."""

from __future__ import annotations

import pytest

from billing.models import Reservation
from tests.harness.error_checks import assert_error
from tests.inference.customer import ApiCustomer


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
