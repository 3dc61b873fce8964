"""Counts are those of the vocabularies' makers, however long the text is and however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference import tokenizer
from inference.serving.token_counting import count_texts, pieces_of

# With what tiktoken counts, o200k_base and cl100k_base.
CORPUS: list[tuple[str, int, int]] = [
    ("", 0, 0),
    ("antidisestablishmentarianism", 6, 6),
    ("2 + 2 = 4", 7, 7),
    ("お誕生日おめでとう", 8, 9),
    ("hello world", 2, 2),
    ("Don't count on it: they're CAN'T-do people, aren't they?\r\n\r\n\tIndented   words  ", 20, 23),
    ("The quick brown fox jumps over the lazy dog. " * 20, 201, 201),
    (
        "def fibonacci(n: int) -> int:\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
        31,
        31,
    ),
    ('{"name": "weather", "arguments": {"city": "Zürich", "days": 3, "units": null}}', 28, 28),
    ("3.14159265358979323846264338327950288419716939937510582097494459", 23, 23),
    ("https://example.com/a/b?c=d&e=%20f#g user@example.com", 17, 17),
    ("Füße, naïve, œuvre, smörgåsbord, žluťoučký kůň", 24, 28),
    ("Съешь же ещё этих мягких французских булок да выпей чаю", 17, 34),
    ("我们都是来自五湖四海，为了一个共同的目标走到一起来了。", 19, 27),  # noqa: RUF001
    ("한국어는 조사가 붙는 교착어입니다.", 12, 19),
    ("العربية تُكتب من اليمين إلى اليسار ١٢٣", 15, 29),
    ("हिन्दी में देवनागरी लिपि का प्रयोग होता है।", 16, 41),
    ("😀👩‍👩‍👧‍👦🇨🇭 emoji and \u200b zero width and \u2028 separators", 24, 35),
    ("<|endoftext|> is text here, and so is <|im_start|>system", 21, 20),
    ("a" * 1000, 125, 125),
    (" " * 333 + "x" + "\n" * 77 + "\t" * 5, 11, 9),
    ("0123456789abcdefABCDEF" * 30, 210, 210),
]
WORDS = st.text(st.sampled_from("abcDEF 's.,!?\n\t 12'漢字かな。、é\"()[]{}-"), max_size=200)


@pytest.mark.parametrize(("text", "o200k", "cl100k"), CORPUS)
def test_counts_are_tiktokens(text: str, o200k: int, cl100k: int) -> None:
    assert count_texts(tokenizer.counter("o200k_base"), [text]) == o200k
    assert count_texts(tokenizer.counter("cl100k_base"), [text]) == cl100k


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
def test_a_long_text_comes_to_what_it_does_whole(vocabulary: str) -> None:
    count = tokenizer.counter(vocabulary)
    long = "".join(text for text, _, _ in CORPUS) * 60

    assert len(list(pieces_of(long))) > 10
    assert count_texts(count, [long]) == count(long)


@given(WORDS)
def test_pieces_are_cut_only_where_no_token_is(text: str) -> None:
    pieces = list(pieces_of(text, size=10))

    assert "".join(pieces) == text
    if max(map(len, pieces)) < 40:  # or there was no seam, and a token more is right as well
        for vocabulary in ("o200k_base", "cl100k_base"):
            count = tokenizer.counter(vocabulary)
            assert sum(map(count, pieces)) == count(text)


def test_what_has_no_seam_is_cut_all_the_same() -> None:
    pieces = list(pieces_of("0" * 1_000_000))

    assert max(map(len, pieces)) <= 4 * tokenizer.SLICE_CHARACTERS
