"""How much credit is held for a request before it runs: the most that it can cost."""

from __future__ import annotations

from billing.prices.bill import cost
from billing.prices.card import PriceCard
from billing.prices.price import Quantities


def hold_amount(card: PriceCard, bounds: Quantities) -> int:
    """
    The most that a request can cost within its bounds, in nano-USD: the dearest reading of the card.

    `bounds` are upper bounds over all completions. Those of parts that are counted in others (cached,
    reasoning ...) need not be there: each token is held at the dearest price that one may have.
    """
    return cost(card.dearest(bounds.prompt), bounds)
