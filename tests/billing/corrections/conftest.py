"""A customer who can pay, and the version that it was charged by."""

from __future__ import annotations

import pytest

from billing.models import PriceVersion
from tests.billing.corrections.priced_requests import TEN_TIMES, add_card
from tests.billing.factories import Customer, make_customer


@pytest.fixture
def rich(transactional_db: None) -> Customer:
    return make_customer(credit=10**15)


@pytest.fixture
def wrong(transactional_db: None) -> PriceVersion:
    return add_card(TEN_TIMES)
