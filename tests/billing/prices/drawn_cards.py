"""Price cards, bounds of requests and uses within them, drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from billing.prices.card import PriceCard, Rate, Tier
from billing.prices.parts import PARTS
from billing.prices.price import Quantities

picos = st.integers(0, 10**12)
counts = st.integers(0, 10**6)
tiers = st.lists(st.tuples(st.integers(0, 10**6), picos), max_size=3, unique_by=lambda tier: tier[0]).map(
    lambda drawn: tuple(Tier(over, picousd) for over, picousd in sorted(drawn))
)
rates = st.builds(Rate, picos, tiers)
REQUIRED = {part.name: rates for part in PARTS if not part.is_optional}
OPTIONAL = {part.name: rates for part in PARTS if part.is_optional}
cards = st.fixed_dictionaries(REQUIRED, optional=OPTIONAL).map(PriceCard)


def parts_of(draw: st.DrawFn, whole: int, names: list[str]) -> dict[str, int]:
    """Some of the whole for each name, all of them together at most the whole."""
    found = {}
    for name in names:
        found[name] = draw(st.integers(0, whole))
        whole -= found[name]
    return found


@st.composite
def bounded_use(draw: st.DrawFn) -> tuple[Quantities, Quantities]:
    """Bounds that a request was held for, and a use within them."""
    bounds = Quantities(
        prompt=draw(counts),
        completion=draw(counts),
        images=draw(st.integers(0, 100)),
        web_searches=draw(st.integers(0, 3)),
    )
    prompt, completion = draw(st.integers(0, bounds.prompt)), draw(st.integers(0, bounds.completion))
    return bounds, Quantities(
        prompt=prompt,
        completion=completion,
        images=draw(st.integers(0, bounds.images)),
        web_searches=draw(st.integers(0, bounds.web_searches)),
        **parts_of(draw, prompt, ["cached", "cache_write", "cache_write_1h", "audio_input"]),
        **parts_of(draw, completion, ["reasoning", "audio_output"]),
    )
