"""
The parts of a price: what a model can charge for. A new one is one entry in `PARTS`.

Everything else is made from the list: columns of models and reservations, form fields, command options, keys
of a model's pricing, `Price`, `Quantities`, the arithmetic, and the rows of both of the ledger's stores. Then
`makemigrations` adds the columns, and whoever learns the new quantity reports it: the upper bound in
`inference.serving.admission`, what was used in `inference.serving.usage_meter`.
"""

from __future__ import annotations

from msgspec import Struct


class PricePart(Struct, frozen=True):
    """One thing that a model charges for: its price, its quantity, and its line on the bill."""

    # Of the price: its column is NAME_price_picousd, its form field NAME, its command option --NAME-price.
    name: str
    # What the price is for one of.
    unit: str
    # How a cost line calls it.
    item: str
    # Its key in the `pricing` of a model as clients read it.
    pricing_key: str
    # How Quantities calls how many there were, and an observed_ column after it. Empty: there is one in each
    # request, and it is on the bill only where it costs something.
    quantity: str = ""
    # The part whose quantity counts these as well: of those, only the others are charged at its price.
    within: str = ""
    # Where nobody gave this price it is that of the part it is `within`, else zero. Otherwise a model
    # without it is not served.
    is_optional: bool = False
    help_text: str = ""

    @property
    def price_column(self) -> str:
        return f"{self.name}_price_picousd"

    @property
    def label(self) -> str:
        """What people call one of it: a prompt token, an image."""
        return self.name if self.name == self.unit else f"{self.name} {self.unit}"


PARTS: tuple[PricePart, ...] = (
    PricePart("prompt", "token", "prompt", "prompt", quantity="prompt"),
    PricePart("completion", "token", "completion", "completion", quantity="completion"),
    PricePart(
        "cached",
        "token",
        "cached prompt",
        "input_cache_read",
        quantity="cached",
        within="prompt",
        is_optional=True,
        help_text="Prompt tokens read from a cache. Empty for a new model: as the prompt's.",
    ),
    PricePart("image", "image", "image", "image", quantity="images", is_optional=True),
    PricePart("request", "request", "request", "request", is_optional=True),
)
QUANTITIES: tuple[str, ...] = tuple(part.quantity for part in PARTS if part.quantity)


def parts_within(whole: PricePart) -> tuple[PricePart, ...]:
    """The parts whose quantities are counted in that of `whole` as well."""
    return tuple(part for part in PARTS if part.within == whole.name)


def observed_column(quantity: str) -> str:
    """The column of a reservation that holds what a heartbeat has seen of a quantity."""
    return f"observed_{quantity}"
