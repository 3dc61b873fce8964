"""
What a request costs, and the lines of its bill. Nothing here touches a database.

One function turns quantities into an amount, for the hold and for the charge, and it rounds once, up, at
the end. It only grows when a quantity grows, so a charge within the quantities that were held for is
within the hold.
"""

from __future__ import annotations

from operator import mul

from msgspec import Struct, structs

from billing.money import PICO_IN_A_NANO
from billing.prices.card import PriceCard
from billing.prices.parts import PARTS
from billing.prices.price import Price, Quantities

# The line item of a cost that was found out later: an amount, and no price.
RECONCILED = "reconciled"


class BillLine(Struct, frozen=True):
    """One line item of one request's charge."""

    item: str
    quantity: int
    amount_nanousd: int


def cost(price: Price, used: Quantities) -> int:
    """What `used` costs, in nano-USD, rounded up once."""
    return _in_nano(price.fixed_picousd + sum(map(mul, structs.astuple(used), price.weights)))


def charge(card: PriceCard, used: Quantities) -> int:
    """What `used` costs by the card, in nano-USD: by the tier of its prompt, rounded up once."""
    return cost(card.price_for(used.prompt), card.charged(used))


def lines(card: PriceCard, used: Quantities, charged_nanousd: int) -> list[BillLine]:
    """
    The lines of what is charged for `used`, one for each part that the card prices.

    They sum to the charge exactly. There is at least one, so that a charge of zero is seen to be final.
    """
    return _lines(_unrounded(card, used), charged_nanousd)


def split(total: int, weights: list[int]) -> list[int]:
    """`total` in whole parts as near to `weights` as can be: the largest remainders get what is left."""
    weight = sum(weights)
    if not weight:
        return [total, *(0 for _ in weights[1:])]
    shares = [total * each // weight for each in weights]
    left = total - sum(shares)
    if left:
        by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % weight), i))
        for i in by_remainder[:left]:
            shares[i] += 1
    return shares


def _lines(parts: list[tuple[str, int, int]], charged_nanousd: int) -> list[BillLine]:
    parts = [part for part in parts if part[1]] or [(PARTS[0].item, 0, 0)]
    shares = split(charged_nanousd, [picousd for _, _, picousd in parts])
    return [BillLine(item, count, share) for (item, count, _), share in zip(parts, shares, strict=True)]


def _unrounded(card: PriceCard, used: Quantities) -> list[tuple[str, int, int]]:
    """Each priced part's item, how many are charged at its price, and the amount in pico-USD."""
    parts = []
    prices, counts = structs.astuple(card.price_for(used.prompt)), structs.astuple(card.charged(used))
    for item, price_index, quantity_index, within in card.bill_order:
        picousd = prices[price_index]
        if quantity_index is None:
            # A request that costs nothing to make has no line of its own.
            count = 1 if picousd else 0
        else:
            count = counts[quantity_index]
            for index in within:
                count -= counts[index]
        parts.append((item, count, count * picousd))
    return parts


def _in_nano(picousd: int) -> int:
    return -(-picousd // PICO_IN_A_NANO)
