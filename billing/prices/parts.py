"""
The parts of a price: what a model can charge for. A new one is one entry in `PARTS`.

Everything else is made from the list: command options, form fields, the keys of a card's JSON and of a
model's pricing, `Price`, `Quantities` and the arithmetic. Cards and quantities are stored as JSON by part
name, so a new part changes no table. Whoever learns the new quantity reports it: the upper bound in
`inference.serving.admission`, what was used in `inference.serving.usage_meter`.
"""

from __future__ import annotations

from msgspec import Struct


class PricePart(Struct, frozen=True):
    """One thing that a model charges for: its price, its quantity, and its line on the bill."""

    # Of the price: its form field and its key in a card are NAME, its command option --NAME-price.
    name: str
    # What the price is for one of. Prices of tokens are typed and shown per million.
    unit: str
    # How a cost line calls it.
    item: str
    # Its key in the `pricing` of a model as clients read it. Empty: it is not there.
    pricing_key: str = ""
    # How Quantities calls how many there were. Empty: there is one in each request, and it is on the bill
    # only where it costs something.
    quantity: str = ""
    # The part whose quantity counts these as well: of those, only the others are charged at its price.
    within: str = ""
    # The part that these are charged as where a card has no price of their own. Empty: as what they are
    # `within`, else they cost nothing.
    charged_as: str = ""
    # Otherwise a model without this price is not served.
    is_optional: bool = False
    help_text: str = ""

    @property
    def label(self) -> str:
        """What people call one of it: a prompt token, an image."""
        return self.item if self.item.endswith(self.unit) else f"{self.item} {self.unit}"

    @property
    def is_per_token(self) -> bool:
        return self.unit == "token"


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
        help_text="Prompt tokens read from a cache. Empty: as the prompt's.",
    ),
    PricePart(
        "cache_write",
        "token",
        "cache write",
        quantity="cache_write",
        within="prompt",
        is_optional=True,
        help_text="Prompt tokens written to a cache for five minutes. Empty: as the prompt's.",
    ),
    PricePart(
        "cache_write_1h",
        "token",
        "cache write 1h",
        quantity="cache_write_1h",
        within="prompt",
        charged_as="cache_write",
        is_optional=True,
        help_text="Prompt tokens written to a cache for an hour. Empty: as those for five minutes.",
    ),
    PricePart(
        "audio_input",
        "token",
        "audio input",
        quantity="audio_input",
        within="prompt",
        is_optional=True,
        help_text="Prompt tokens of audio. Empty: as the prompt's.",
    ),
    PricePart(
        "reasoning",
        "token",
        "reasoning",
        quantity="reasoning",
        within="completion",
        is_optional=True,
        help_text="Completion tokens of reasoning. Empty: as the completion's, as nearly everywhere.",
    ),
    PricePart(
        "audio_output",
        "token",
        "audio output",
        quantity="audio_output",
        within="completion",
        is_optional=True,
        help_text="Completion tokens of audio. Empty: as the completion's.",
    ),
    PricePart("image", "image", "image", "image", quantity="images", is_optional=True),
    PricePart("web_search", "search", "web search", quantity="web_searches", is_optional=True),
    PricePart("request", "request", "request", "request", is_optional=True),
)
QUANTITIES: tuple[str, ...] = tuple(part.quantity for part in PARTS if part.quantity)


def parts_within(whole: PricePart) -> tuple[PricePart, ...]:
    """The parts whose quantities are counted in that of `whole` as well."""
    return tuple(part for part in PARTS if part.within == whole.name)


def part_named(name: str) -> PricePart:
    return next(part for part in PARTS if part.name == name)
