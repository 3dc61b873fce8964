"""Whoever closes a tab on a model added with no option pays for what was used, and no credit stays held."""

from __future__ import annotations

import pytest

from billing.models import ChargeBasis, EndedBy
from billing.prices.bill import charge
from billing.prices.price import Quantities
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.serving.expected_usage import PRICE, observed
from tests.inference.serving.lifecycle.outcome.ways import Gateway, generation_when
from tests.inference.serving.paced_client import Caller, run

WORDS = 5


@pytest.mark.parametrize(
    ("script", "words", "used", "basis"),
    [
        ("hang_before_headers", 0, observed(0), ChargeBasis.ESTIMATED),
        ("hang_after_headers", 0, observed(0), ChargeBasis.ESTIMATED),
        ("hang_midstream?tokens=2", 2, observed(2), ChargeBasis.OBSERVED),
        ("no_usage_yet?late_end=5", WORDS, observed(WORDS), ChargeBasis.OBSERVED),
    ],
    ids=["no answer", "no word", "some words", "the last word"],
)
def test_closing_a_tab(
    gateway: Gateway, script: str, words: int, used: Quantities, basis: ChargeBasis
) -> None:
    backend = make_backend("server", "openai", base_url=f"{gateway.upstream.url}/v1")
    deploy(make_model("plain"), backend, script)  # prices, and no other option

    async def story() -> None:
        caller = Caller(gateway.customer, "plain", stream=True)
        if words:
            await caller.until(lambda caller: caller.content.count(b'"content":"') >= words)
        else:
            await generation_when(lambda generation: not generation.is_provably_free)
        caller.disconnect()
        await caller.ended()

    run(story)

    row = gateway.customer.reservation()
    assert (row.state, row.basis, row.ended_by) == ("settled", basis, EndedBy.CLIENT)
    assert row.charged_nanousd == charge(PRICE, used)
    assert gateway.customer.account.held_nanousd == 0
