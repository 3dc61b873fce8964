"""Characters that are drawn as nothing, with which a word can be hidden from whoever looks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Ranges of code points, first and last. The table is written out, because `unicodedata` knows neither the
# property nor, of later versions, the characters; code points that are reserved for more of them are in it.
DEFAULT_IGNORABLE = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors and vowel separator
    (0x200B, 0x200F),  # zero width, marks of direction
    (0x202A, 0x202E),  # embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates; 2065 is reserved
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # zero width no-break space
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xFFF0, 0xFFF8),  # reserved
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE0FFF),  # tags, more variation selectors, and what is reserved around them
)
# Format controls beside those: signs of Arabic, Kaithi and Egyptian that are drawn around others.
OTHER_FORMAT_CONTROLS = (
    (0x0600, 0x0605),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0xFFF9, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
)
# All but tab and what ends a line: those are white space.
CONTROLS = ((0x0000, 0x0008), (0x000E, 0x001F), (0x007F, 0x0084), (0x0086, 0x009F))
# Empty by their shape: braille without a dot, what stands for an embedded object.
BLANK = ((0x2800, 0x2800), (0xFFFC, 0xFFFC))

RANGES = (*DEFAULT_IGNORABLE, *OTHER_FORMAT_CONTROLS, *CONTROLS, *BLANK)
# A character is looked up in one step as long as none of the set is beyond 16 bits, so there are two sets.
IN_16_BITS = 0xFFFF


def _any_of(ranges: Iterable[tuple[int, int]]) -> re.Pattern[str]:
    return re.compile("[" + "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in ranges) + "]+")


INVISIBLE = _any_of(each for each in RANGES if each[1] <= IN_16_BITS)
INVISIBLE_BEYOND = _any_of(each for each in RANGES if each[0] > IN_16_BITS)
ASCII = dict.fromkeys(code for first, last in CONTROLS for code in range(first, min(last, 0x7F) + 1))
# An expression keeps the interpreter to itself until it ends; after so many characters others have a turn.
CHARACTERS_AT_ONCE = 64 * 1024


def visible(text: str) -> str:
    """The text as a reader sees it."""
    if text.isascii():
        return text.translate(ASCII)
    if len(text) <= CHARACTERS_AT_ONCE:
        return INVISIBLE_BEYOND.sub("", INVISIBLE.sub("", text))
    return "".join(
        visible(text[start : start + CHARACTERS_AT_ONCE]) for start in range(0, len(text), CHARACTERS_AT_ONCE)
    )
