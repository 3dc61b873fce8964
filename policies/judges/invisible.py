"""Characters that are drawn as nothing, with which a word can be hidden from whoever looks for it."""

from __future__ import annotations

import re
import unicodedata

# Variation selectors, the grapheme joiner, fillers. Most others of the kind are in Unicode's category Cf.
OTHERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def visible(text: str) -> str:
    """The text as a reader sees it."""
    if text.isascii():
        return text
    drawn = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return OTHERS.sub("", drawn)
