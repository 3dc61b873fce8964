"""The usage that a request is charged for: as the backend reports it, and as the gateway counts it."""

from __future__ import annotations

from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from inference.tokenizer import LIKELY_AROUND_A_PROMPT, LIKELY_AROUND_A_TURN, counter
from tests.inference.backends.upstreams.faulty.bodies import word
from tests.inference.catalog.factories import PRICES
from tests.inference.customer import HELLO

PRICE = PriceCard.flat(**PRICES)
UPSTREAM_PROMPT = 11


def count(text: str) -> int:
    return counter("o200k_base")(text)


def observed(words: int) -> Quantities:
    """What the gateway counts for itself when so many words were seen."""
    prompt = count(HELLO) + LIKELY_AROUND_A_TURN + LIKELY_AROUND_A_PROMPT
    return Quantities(prompt=prompt, completion=sum(count(word(place)) for place in range(words)))


def reported(completion: int = 5, cached: int = 0, prompt: int = UPSTREAM_PROMPT) -> Quantities:
    return Quantities(prompt=prompt, completion=completion, cached=cached)
