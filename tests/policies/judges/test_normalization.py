"""A text that is normalized and searched in pieces gives what the whole of it gives."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.judges import quoted
from policies.judges.invisible import visible
from policies.judges.normalization import (
    BOUNDARY,
    LOOKAHEAD_CHARACTERS,
    PIECE_CHARACTERS,
    normalized_pieces,
)

# Letters of several scripts, marks of several classes, jamo of both widths, kana and its sound marks, what is
# invisible, spaces, line ends, ligatures, what decomposes into many, halves of surrogate pairs.
ALPHABET = (
    "aAe\u00e9\u0130\u00df\u03a3\u0439\u05d0\u0628\u0915\u4f60\u304b\uff76\U0001f600\U0001d422\U00011099"
    "\u0301\u0316\u0323\u0327\u0345\u093c\u09be\u3099\uff9e\U000110ba"
    "\u1100\u1161\u11a8\uac00\u3131\u314f\uffa1\uffc2"
    "\u200b\u034f\ufe0f\u115f\u3164\uffa0\U000e0041\x00\x1c"
    " \t\u00a0\u3000\n\r\x85\u2028\ufb01\ufdfa\u00a8\u2126\u0958\ud800"
)
CODE_POINTS = [chr(code) for code in range(sys.maxunicode + 1)]


def normalized_at_once(text: str) -> str:
    plain = visible(unicodedata.normalize("NFKC", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def spaced(text: str) -> str:
    return " ".join(text.split())


def is_found_at_once(phrase: str, text: str) -> bool:
    lines = normalized_at_once(text).splitlines()
    forms = ["\n".join(lines), "".join(lines), "".join(line.strip() for line in lines)]
    return any(phrase in spaced(form) for form in forms)


@given(st.text(ALPHABET, max_size=LOOKAHEAD_CHARACTERS), st.integers(1, 9))
def test_the_pieces_together_are_the_normalized_text(text: str, size: int) -> None:
    # Repeated, so that there is more of it than is looked at for the end of one piece.
    longer = f"{text}." * (2 + 2 * LOOKAHEAD_CHARACTERS // (len(text) + 1))

    assert "".join(normalized_pieces(longer, size)) == normalized_at_once(longer)


@pytest.mark.slow
def test_a_piece_ends_only_before_what_composes_with_nothing_before_it() -> None:
    pairs = (unicodedata.decomposition(each).split() for each in CODE_POINTS)
    composing = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and not pair[0].startswith("<")}
    composing |= set(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))  # Hangul has no table

    for boundary in BOUNDARY.findall("".join(CODE_POINTS)):
        first = unicodedata.normalize("NFKD", boundary)[0]
        assert not unicodedata.combining(first), hex(ord(boundary))
        assert first not in composing, hex(ord(boundary))
        assert visible(first) == first, hex(ord(boundary))


def test_nothing_visible_becomes_invisible_by_being_normalized() -> None:
    seen = visible("".join(CODE_POINTS))

    for each in seen:
        plain = unicodedata.normalize("NFKC", each)
        assert plain == each or visible(plain) == plain, hex(ord(each))


@pytest.mark.parametrize("length", [1, 255, 1024, 5000])
def test_an_accent_is_composed_across_any_number_of_invisible_characters(length: int) -> None:
    assert (
        "".join(normalized_pieces("x" * 1000 + "e" + "\u200b" * length + "\u0301")) == "x" * 1000 + "\u00e9"
    )


@given(st.text("ab \t\n\r\u2028\u200b", max_size=60), st.text("ab ", max_size=9), st.integers(1, 5))
def test_a_phrase_is_found_in_pieces_where_it_is_found_at_once(text: str, phrase: str, size: int) -> None:
    phrase = spaced(phrase) or "ab"
    # The first piece is cut only when more follows than is looked at for its end.
    longer = text + "." * (size + LOOKAHEAD_CHARACTERS)

    assert quoted.is_any_found((phrase,), quoted.made_forms(longer, size)) == is_found_at_once(phrase, longer)


@pytest.mark.parametrize(
    "written",
    ["INTERNAL \u2028\t only", "in\r\nternal  only", "internal o \n\n nly", "inter\u200bnal\u3000only"],
)
@pytest.mark.parametrize("cut", [PIECE_CHARACTERS, quoted.WINDOW_CHARACTERS])
def test_a_phrase_across_a_cut_is_found_in_every_form(written: str, cut: int) -> None:
    for before in range(cut - len(written) - 1, cut + 2):
        text = "\u00e4" * before + written + "x" * 2 * PIECE_CHARACTERS
        assert quoted.is_any_found(("internal only",), quoted.made_forms(text)), before


def test_a_phrase_longer_than_a_window_is_found() -> None:
    phrase = "ab" * quoted.WINDOW_CHARACTERS
    text = "c" * 5000 + "ab\n" * quoted.WINDOW_CHARACTERS

    assert quoted.is_any_found((phrase,), quoted.made_forms(text))
    assert not quoted.is_any_found((phrase + "a",), quoted.made_forms(text))
