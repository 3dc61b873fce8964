"""
Text as it is compared: what a reader cannot tell apart made the same, in pieces of bounded length.

Normalizing is one call that keeps the interpreter to itself until it ends, and takes time in the square of a
run of combining marks. A text is therefore normalized piece by piece. A piece ends before a character that
neither combines nor composes with what precedes it, so that the pieces together are the normalized text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from gateway_site.api.bodies.checkpoints import checkpoint
from policies.judges.invisible import visible

PIECE_CHARACTERS: Final = 1024
# How far beyond that the end of a piece is looked for. Words of every script have a letter, a digit or white
# space within a few characters. What has none in hundreds (a pile of accents, a row of vowel signs) is no
# text: it is cut anywhere, and an accent after the cut is not composed with a letter before it.
LOOKAHEAD_CHARACTERS: Final = 256
# Letters, digits and white space of every script, and ASCII; less the letters that compose with the one
# before them: vowels and final consonants of Hangul, of any width, and the halfwidth sound marks of kana.
BOUNDARY = re.compile(r"(?![\u115f-\u11ff\u3131-\u318e\uff9e-\uffdc\x1c-\x1f])[\w\s!-~]")


def normalized(text: str) -> str:
    """A short text with width, ligatures and case made the same, without characters drawn as nothing."""
    return "".join(normalized_pieces(text))


def normalized_pieces(text: str, piece_characters: int = PIECE_CHARACTERS) -> Iterator[str]:
    """A text of any length, normalized piece by piece, with a checkpoint before each."""
    for piece in _visible_pieces(text, piece_characters):
        plain = piece if piece.isascii() else unicodedata.normalize("NFKC", piece)
        yield plain.casefold()


def _visible_pieces(text: str, piece_characters: int) -> Iterator[str]:
    # What is invisible goes first: a letter and its accent compose, however much of it stands between them,
    # and no amount of it moves a cut. Nothing visible becomes invisible by being normalized.
    pending = ""
    for start in range(0, len(text), piece_characters):
        checkpoint()
        pending += visible(text[start : start + piece_characters])
        while len(pending) >= piece_characters + LOOKAHEAD_CHARACTERS:
            found = BOUNDARY.search(pending, piece_characters, piece_characters + LOOKAHEAD_CHARACTERS)
            cut = found.start() if found else piece_characters
            yield pending[:cut]
            pending = pending[cut:]
    if pending:
        yield pending
