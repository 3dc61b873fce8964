"""
Tabs closed at random moments leave nothing held, and cost what was generated.

The short form of `python -m tests.e2e.streams.closed_tabs --closes 500`.
"""

from __future__ import annotations

import pytest

from billing.models import EndedBy
from tests.e2e.streams.tab_closing import close_tabs
from tests.inference.customer import ApiCustomer
from tests.inference.serving.expected_usage import PRICE

CLOSES = 40
# What may have been on its way when each of them was closed, on a machine that is busy.
WORDS_ON_THEIR_WAY = 2


@pytest.mark.slow
def test_closed_tabs_hold_nothing_and_pay_for_what_was_generated(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    found = close_tabs(process_environment, customer, CLOSES, seed=7)

    assert found.held_nanousd == 0
    assert not [outcome for outcome in found.outcomes if outcome.startswith(("held", "unknown"))]
    on_their_way = CLOSES * WORDS_ON_THEIR_WAY * PRICE.rates["completion"].picousd // 1000
    assert 0 <= found.emitted_nanousd - found.charged_nanousd <= on_their_way
    # Closed before the first word, and midway.
    assert found.outcomes[f"settled estimated {EndedBy.CLIENT}"]
    assert found.outcomes[f"settled observed {EndedBy.CLIENT}"] > CLOSES / 2
