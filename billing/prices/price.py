"""`Price` and `Quantities`: a whole number for each part of a price, by the part's name."""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct, defstruct, structs

from billing.money import MAX_NANOUSD
from billing.prices.parts import PARTS, QUANTITIES, parts_within

# More of anything than one request can have; keeps a backend's nonsense out of the arithmetic.
MAX_QUANTITY = 10**12

# Each quantity that counts others as well, with those.
_WHOLES = [
    (whole.quantity, [part.quantity for part in within]) for whole in PARTS if (within := parts_within(whole))
]


_parts_within = itemgetter(*(QUANTITIES.index(part.quantity) for part in PARTS if part.within))


class _CheckedPrice(Struct, frozen=True, dict=True):
    def __post_init__(self) -> None:
        for value in structs.astuple(self):
            if type(value) is not int or not 0 <= value <= MAX_NANOUSD:
                raise ValueError(f"A price must be a whole number of pico-USD, not {value!r}.")

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """
        What one of each quantity adds to a cost, in the order of QUANTITIES.

        One that is counted in another as well adds the difference: that one's price is in the sum already.
        """
        prices = structs.asdict(self)
        return tuple(
            prices[part.name] - (prices[part.within] if part.within else 0) for part in PARTS if part.quantity
        )

    @cached_property
    def fixed_picousd(self) -> int:
        """What every request costs, whatever it uses."""
        return sum(getattr(self, part.name) for part in PARTS if not part.quantity)


class _CheckedQuantities(Struct, frozen=True):
    def __post_init__(self) -> None:
        values = structs.astuple(self)
        for value in values:
            if type(value) is not int or not 0 <= value <= MAX_QUANTITY:
                raise ValueError(f"A quantity must be a whole number, not {value!r}.")
        # Most requests have none of these.
        if any(_parts_within(values)):
            self._check_wholes()

    def _check_wholes(self) -> None:
        for whole, within in _WHOLES:
            if sum([getattr(self, quantity) for quantity in within]) > getattr(self, whole):
                raise ValueError(f"More {', '.join(within)} than {whole}, which counts it as well.")


if TYPE_CHECKING:
    # What the type checker can know of structs that are made from a list: their fields are whole numbers.

    class Price(_CheckedPrice):
        """What a model costs, in pico-USD for one of each part. Zero is a price: it means free."""

        def __init__(self, **picousd: int) -> None: ...

        def __getattr__(self, part: str) -> int: ...

    class Quantities(_CheckedQuantities):
        """What one request used, over all its completions. `cached` tokens are among the `prompt` tokens."""

        def __init__(self, **counts: int) -> None: ...

        def __getattr__(self, quantity: str) -> int: ...

else:
    Price = defstruct(
        "Price", [(part.name, int, 0) for part in PARTS], bases=(_CheckedPrice,), frozen=True, kw_only=True
    )
    Quantities = defstruct(
        "Quantities",
        [(quantity, int, 0) for quantity in QUANTITIES],
        bases=(_CheckedQuantities,),
        frozen=True,
        kw_only=True,
        # Stored with each request: what is zero is left out.
        omit_defaults=True,
    )
