"""A phrase with characters in it that nobody sees."""

from __future__ import annotations

import asyncio
import sys
import unicodedata

import pytest

from policies.judges.invisible import RANGES, visible
from policies.judges.quoted import QuotedJudge

RULE = 'Does the text contain "FORBIDDEN"?'
WHITE_SPACE = "\t\n\x0b\x0c\r\x85"


def is_found(text: str) -> bool:
    return asyncio.run(QuotedJudge().score(RULE, text)) == 1.0


@pytest.mark.parametrize(
    "hidden",
    [
        *"\x00\x01\x1b\x1c\x1f\x7f\x80\x9f\u00ad\u034f\u061c\u115f\u17b4\u180b\u180f\u200b\u200d\u202e\u2060\u2065",
        *"\u2800\u3164\ufe0f\ufeff\uffa0\ufff0\ufff8\ufff9\ufffc",
        *"\U0001bca0\U0001d173\U000e0000\U000e0041\U000e0080\U000e0100\U000e0fff",
    ],
    ids=lambda hidden: f"U+{ord(hidden):04X}",
)
def test_the_phrase_is_found_around_it(hidden: str) -> None:
    assert is_found(f"FORB{hidden}IDDEN")
    assert is_found(f"a caf\u00e9: {hidden}F{hidden}{hidden}ORBIDDE{hidden}N")


def test_every_control_and_format_character_that_unicode_names_is_left_out() -> None:
    named = {
        chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf")
    }

    assert {character for character in named if visible(character)} == set(WHITE_SPACE)


def test_the_whole_table_is_left_out_and_its_neighbours_are_not() -> None:
    listed = {code for first, last in RANGES for code in range(first, last + 1)}
    neighbours = {edge for first, last in RANGES for edge in (first - 1, last + 1)} - listed - {-1}

    assert visible("".join(map(chr, sorted(listed)))) == ""
    for code in neighbours:
        assert visible(chr(code)) == chr(code), hex(code)


def test_what_can_be_seen_stays() -> None:
    seen = "tab\tline\nnext\u0085 caf\u00e9 \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \U0001f600 \u2801 a b"

    assert visible(seen) == seen
    assert not is_found("FORB IDDEN FORB-IDDEN FORB\u2801IDDEN")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_the_phrase_is_found_across_any_line_end(end: str) -> None:
    assert is_found(f"hello FORB{end}IDDEN")
