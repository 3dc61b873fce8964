"""
The embedded judge. It understands one kind of question, and says so about every other.

`Does the text contain "internal only"?` is answered by looking for the phrase. Anything that is more than
that (a negation, a condition, a second thought) is inconclusive: looking for the phrase would answer
another question than the one that was asked.

What is found: the phrase, also inside of a longer word, in any case, any width, with invisible characters in
it, with other white space between its words, or cut by a line end, which is where two parts of a message
meet. What is not found: letters that only look alike, encodings, translations. Those need a judge that reads.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from functools import lru_cache

from policies.judges.base import Inconclusive
from policies.judges.invisible import visible

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
# Larger texts are searched in a thread: a loop that waits for one request keeps all others waiting.
CHARACTERS_AT_ONCE = 16 * 1024
CHARACTERS_KEPT = 1024 * 1024


class QuotedJudge:
    """Answers 1.0 or 0.0."""

    name = "quoted"

    async def score(self, rule: str, text: str, *, salt: str = "") -> float:
        phrases = phrases_of(rule)
        if not phrases:
            raise Inconclusive("not a question about a quoted phrase")
        if len(text) > CHARACTERS_AT_ONCE:
            return await asyncio.to_thread(_score, phrases, text)
        return _score(phrases, text)

    async def close(self) -> None:
        """It holds nothing."""


def _score(phrases: tuple[str, ...], text: str) -> float:
    forms = _forms(text)
    return 1.0 if any(phrase in form for phrase in phrases for form in forms) else 0.0


@lru_cache(maxsize=1024)
def phrases_of(rule: str) -> tuple[str, ...]:
    """The phrases, any of which makes the answer yes; none where the question is of another kind."""
    found = ["".join(groups) for groups in QUOTED.findall(rule)]
    phrases = tuple(_spaced(normalized(phrase)) for phrase in found)
    if not phrases or not all(phrases):
        return ()
    rest = re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)*", QUOTED.sub(" ", rule).casefold())
    is_plain = PLAIN_WORDS.issuperset(rest) and not CONTAINING_WORDS.isdisjoint(rest)
    return phrases if is_plain else ()


def normalized(text: str) -> str:
    """What a reader cannot tell apart made the same: width, ligatures, case, characters drawn as nothing."""
    if text.isascii():
        return visible(text).casefold()
    plain = visible(unicodedata.normalize("NFKC", text))
    # Again, because what stood apart may now be one: a letter, something invisible, an accent.
    return unicodedata.normalize("NFKC", plain).casefold()


def _forms(text: str) -> tuple[str, ...]:
    # A request is asked about by many policies one after the other; what is very large is not kept for that.
    return _kept_forms(text) if len(text) <= CHARACTERS_KEPT else _made_forms(text)


@lru_cache(maxsize=2)
def _kept_forms(text: str) -> tuple[str, ...]:
    return _made_forms(text)


def _made_forms(text: str) -> tuple[str, ...]:
    plain = normalized(text)
    lines = plain.splitlines()
    if len(lines) < 2:
        return (_spaced(plain),)
    return _spaced(plain), _spaced("".join(lines)), _spaced("".join(line.strip() for line in lines))


def _spaced(text: str) -> str:
    return " ".join(text.split())
