"""
The embedded judge, which answers questions about quoted phrases and no others.

`Does the text contain "internal only"?` is answered by looking for the phrase. Anything that is more than
that (a negation, a condition, a second thought) is inconclusive: looking for the phrase would answer
another question than the one that was asked.

What is found: the phrase, also inside of a longer word, in any case, any width, with invisible characters in
it, with other white space between its words, or cut by a line end, which is where two parts of a message
meet. What is not found: letters that only look alike, encodings, translations. Those need a judge that reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gateway_site.api.bodies.checkpoints import checkpoint
from policies.judges.base import Inconclusive
from policies.judges.normalization import PIECE_CHARACTERS, normalized, normalized_pieces
from policies.judges.threads import CHARACTERS_AT_ONCE, run_in_thread

QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»|「([^」]+)」')
CONTAINING_WORDS = frozenset(
    """
    contain contains contained containing include includes included mention mentions mentioned say says said
    use uses used quote quotes quoted repeat repeats repeated write writes written have has appear appears
    occur occurs present found in
    """.split()  # noqa: SIM905 - as a list of strings it would be a page
)
# The whole vocabulary of a question about containing. A word outside of it may change what is asked.
PLAIN_WORDS = CONTAINING_WORDS | frozenset(
    """
    a an any anywhere are be does do did either following here is it its of one or somewhere that the there
    these this
    answer chat content conversation input message messages output prompt reply request response text
    user assistant model customer
    word words phrase phrases string strings term terms expression expressions name sentence
    """.split()  # noqa: SIM905
)
CHARACTERS_KEPT = 1024 * 1024
# Normalizing makes up to eighteen characters of one. No real text grows as much as this.
MAX_GROWTH = 4
GROWTH_ALLOWED_CHARACTERS = 64 * 1024
# How much of a form is searched in one call, unless a phrase is longer.
WINDOW_CHARACTERS = 16 * 1024

# The next characters of a text as each of the ways to read it has them.
Forms = tuple[str, str, str]


class QuotedJudge:
    """Looks for quoted phrases, and scores 1.0 or 0.0."""

    name = "quoted"

    async def score(self, rule: str, text: str, *, salt: str = "") -> float:
        phrases = phrases_of(rule)
        if not phrases:
            raise Inconclusive("not a question about a quoted phrase")
        if len(text) > CHARACTERS_AT_ONCE:
            return await run_in_thread(salt, _score, phrases, text)
        return _score(phrases, text)

    async def close(self) -> None:
        """Nothing is open for a loop."""


def _score(phrases: tuple[str, ...], text: str) -> float:
    return 1.0 if is_any_found(phrases, _forms(text)) else 0.0


@lru_cache(maxsize=1024)
def phrases_of(rule: str) -> tuple[str, ...]:
    """The phrases, any of which makes the answer yes; none where the question is of another kind."""
    found = ["".join(groups) for groups in QUOTED.findall(rule)]
    phrases = tuple(dict.fromkeys(_spaced(normalized(phrase)) for phrase in found))
    if not phrases or not all(phrases):
        return ()
    words = re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)*", QUOTED.sub(" ", rule).casefold())
    is_plain = PLAIN_WORDS.issuperset(words) and not CONTAINING_WORDS.isdisjoint(words)
    return phrases if is_plain else ()


def is_any_found(phrases: tuple[str, ...], pieces: Iterable[Forms]) -> bool:
    """Whether a form of the text that comes in these pieces has one of the phrases, also across pieces."""
    overlap = max(map(len, phrases)) - 1
    full = max(WINDOW_CHARACTERS, overlap)
    windows: list[list[str]] = [[], [], []]
    length = 0
    for forms in pieces:
        for window, piece in zip(windows, forms, strict=True):
            window.append(piece)
        length += len(forms[0])  # the longest: the other two leave white space out
        if length >= full:
            texts = ["".join(window) for window in windows]
            if _is_in_any(phrases, texts):
                return True
            windows = [[text[-overlap:]] if overlap else [] for text in texts]
            length = 0
    return _is_in_any(phrases, ["".join(window) for window in windows])


def _is_in_any(phrases: tuple[str, ...], texts: list[str]) -> bool:
    # Where no line ends, all forms are the same.
    for text in dict.fromkeys(texts):
        checkpoint()
        if any(phrase in text for phrase in phrases):
            return True
    return False


def _forms(text: str) -> Iterable[Forms]:
    # A request is asked about by many policies one after the other; what is very large is not kept for that.
    return _kept_forms(text) if len(text) <= CHARACTERS_KEPT else made_forms(text)


@lru_cache(maxsize=2)
def _kept_forms(text: str) -> tuple[Forms, ...]:
    return tuple(made_forms(text))


def made_forms(text: str, piece_characters: int = PIECE_CHARACTERS) -> Iterator[Forms]:
    """
    Three ways to read the text, piece by piece: a line end is a space; it is nothing; it is nothing, and
    neither are the spaces around it. In each, white space is one space.
    """
    limit = MAX_GROWTH * len(text) + GROWTH_ALLOWED_CHARACTERS
    length, space = 0, ""
    for plain in normalized_pieces(text, piece_characters):
        length += len(plain)
        if length > limit:
            raise Inconclusive("text grows too long when normalized")
        # White space at the end waits for the next piece, as little of it as says the same.
        piece = space + plain
        settled = piece.rstrip()
        space = _shortened(piece[len(settled) :])
        if settled:
            yield _forms_of(settled)


def _shortened(space: str) -> str:
    """At most a space and a line end, for white space that has any."""
    spaces = "".join(space.splitlines())
    return (" " if spaces else "") + ("\n" if len(spaces) < len(space) else "")


def _forms_of(piece: str) -> Forms:
    """Three forms of a piece that does not end with white space, nor does what precedes it."""
    lines = piece.splitlines()
    spaced = _joined(piece)
    if len(lines) < 2:
        return spaced, spaced, spaced
    stripped = _spaced("".join(line.strip() for line in lines))
    # White space at the beginning is a space between this piece and the last, unless a line ends in it.
    between = " " if lines[0][:1].isspace() and lines[0].strip() else ""
    return spaced, _joined("".join(lines)), between + stripped


def _joined(piece: str) -> str:
    return (" " if piece[0].isspace() else "") + _spaced(piece)


def _spaced(text: str) -> str:
    return " ".join(text.split())
