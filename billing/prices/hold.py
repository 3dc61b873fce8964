"""How much credit is held for a request before it runs: the most that it can cost."""

from __future__ import annotations

from functools import lru_cache

from billing.prices.bill import cost
from billing.prices.parts import PARTS, parts_within
from billing.prices.price import Price, Quantities


def hold_amount(
    price: Price, *, prompt_upper: int, completion_bound: int, choices: int = 1, **bounds: int
) -> int:
    """
    The most that a request can cost, in nano-USD.

    `prompt_upper` is a true upper bound (tokenizer count plus template overhead, else bytes) and
    `completion_bound` is per choice, clamped by the model's own maximum already. `bounds` are those of the
    other quantities, such as `images`.
    """
    most = Quantities(prompt=prompt_upper, completion=choices * completion_bound, **bounds)
    return cost(_dearest(price), most)


# A deployment has few prices.
@lru_cache(maxsize=1_024)
def _dearest(price: Price) -> Price:
    """The price with each part at the most that one of it may cost."""
    # A discount for cached tokens is never assumed; a surcharge for them is.
    return Price(
        **{
            part.name: max(getattr(price, each.name) for each in (part, *parts_within(part)))
            for part in PARTS
        }
    )
