"""What a judge is: one question about one text, answered with a probability."""

from __future__ import annotations

from typing import Protocol


class Inconclusive(Exception):
    """
    The judge has no answer. It never counts as "no": an enforcing policy then refuses the request.

    `reason` is a word or two of this program, for the record. It must not repeat the text or the rule.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Judge(Protocol):
    @property
    def name(self) -> str:
        """What verdicts are remembered under: a judge that would answer differently has another name."""
        ...

    async def score(self, rule: str, text: str, *, salt: str = "") -> float:
        """
        The probability, from 0 to 1, that the answer to `rule` about `text` is yes; or Inconclusive.

        `salt` differs between organizations. A judge that remembers parts of what it was asked must
        keep those with different salts apart, or one could find out by timing what another has asked.
        """
        ...

    async def close(self) -> None:
        """Give back what the running event loop holds for it."""
        ...
