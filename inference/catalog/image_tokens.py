"""
How many tokens a model counts for one image at most, where that is far from usual, by the model's name.

For the first price card of a model that is priced by hand. Figures are of the largest image that a provider
takes, by the provider's own arithmetic; an operator who knows better writes them into the card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from billing.prices.card import DEFAULT_IMAGE_TOKENS
from inference.catalog.vocabularies import last_segment

# The first row whose pattern is in the name counts.
_FAMILIES: Final = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"), tokens)
    for pattern, tokens in (
        # A base of 2,833 and eight tiles of 5,667.
        (r"gpt-?4o-mini", 48_200),
        # 1,536 patches, times 2.46, and times 1.62 or 1.72.
        (r"gpt-(?:4-1|5)-nano", 3_800),
        (r"gpt-(?:4-1|5)-mini|o4-mini", 2_700),
    )
)


def image_tokens_of(model_id: str, upstream_ids: Iterable[str] = ()) -> int:
    """The most tokens of one image: of any of the model's names, and the usual where none says more."""
    names = [last_segment(name) for name in (model_id, *upstream_ids)]
    found = [tokens for name in names for pattern, tokens in _FAMILIES if pattern.search(name)]
    return max([DEFAULT_IMAGE_TOKENS, *found])
