"""Counts what one request has used so far: as its backend reports it, else by the events that passed."""

from __future__ import annotations

from typing import Final

from billing.models import ChargeBasis
from billing.prices.price import Quantities
from inference.backends.usage import Alert, UsageWatch
from inference.events import Event, Finish, TextDelta, Usage
from inference.tokenizer import CountTokens

# Counted in one go: a millisecond's worth, so that nobody else waits, and no text is kept for long.
MAX_UNCOUNTED: Final = 512
# By how much an answer may be over its bound before it is taken for one that will not stop. Pieces may be
# parts of tokens and characters are no tokens at all, so it takes both: more pieces than tokens were asked
# for, and more characters than tokens have on average in any language.
PIECES_A_TOKEN: Final = 1.1
CHARACTERS_A_TOKEN: Final = 8
MORE_PIECES: Final = 16
MORE_CHARACTERS: Final = 128


class UsageMeter:
    """
    Follows the events of one request, and knows its usage at any moment.

    Texts are counted piece by piece, as they came: most backends send a token at a time, and what was
    generated in pieces is paid for in pieces. Without a vocabulary a piece is a token, which it is at the
    least. Usage is unknown only where nothing was seen and the backend has reported nothing.
    """

    def __init__(
        self,
        *,
        completions: int,
        images: int,
        likely_prompt: int,
        output_bound: int,
        count_tokens: CountTokens | None,
        alert: Alert,
    ) -> None:
        self._completions = completions
        # Of all completions together.
        self._output_bound = output_bound * completions
        self._most_pieces = int(self._output_bound * PIECES_A_TOKEN) + MORE_PIECES
        self._most_characters = self._output_bound * CHARACTERS_A_TOKEN + MORE_CHARACTERS
        self._pieces = 0
        self._characters = 0
        # The backend has certainly generated more than it was asked for.
        self.is_past_bound = False
        self._images = images
        self._likely_prompt = likely_prompt
        self._count_tokens = count_tokens
        self._watch = UsageWatch(alert)
        # Since the last report.
        self._uncounted: list[str] = []
        self._counted = 0
        self._finished: set[int] = set()
        self.has_output = False

    def count(self, event: Event) -> None:
        """Count an event's billable text. Usage events go to `report`."""
        if type(event) is TextDelta:
            text = event.text  # as its property, which would be a call for nearly every event
        elif type(event) is Finish:
            self._finished.add(event.index)
            return
        else:
            text = event.billable_text
        if text:
            self.has_output = True
            self._uncounted.append(text)
            self._pieces += 1
            self._characters += len(text)
            if self._pieces > self._most_pieces and self._characters > self._most_characters:
                self.is_past_bound = True
            if len(self._uncounted) >= MAX_UNCOUNTED:
                self._count_pending()

    def report(self, usage: Usage) -> None:
        """Take the backend's own count, from the start of the answer; what cannot be true is not taken."""
        believed = self._watch.report(
            usage.prompt_tokens,
            usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            has_output=self.has_output,
        )
        if believed is not None:
            self._uncounted.clear()
            self._counted = 0
            self.has_output = self.has_output or believed.completion_tokens > 0

    @property
    def basis(self) -> ChargeBasis:
        """USAGE where the backend itself reported the whole: after every Finish, and nothing came later."""
        is_reported = (
            self._watch.latest is not None
            and len(self._finished) >= self._completions
            and not self._uncounted
            and not self._counted
        )
        return ChargeBasis.USAGE if is_reported else ChargeBasis.OBSERVED

    def usage(self) -> Usage | None:
        """The usage so far, or None where it cannot be known."""
        reported = self._watch.latest
        if reported is None and self._count_tokens is None and not self.has_output:
            return None
        self._count_pending()
        completion_tokens = self._counted if reported is None else reported.completion_tokens + self._counted
        if self.is_past_bound:
            # What went past the bound and was cut is not the customer's to pay, who asked for no more.
            completion_tokens = min(completion_tokens, self._output_bound)
        if reported is None:
            return Usage(self._likely_prompt, completion_tokens)
        return Usage(
            reported.prompt_tokens,
            completion_tokens,
            cached_tokens=reported.cached_tokens,
            cache_write_tokens=reported.cache_write_tokens,
            reasoning_tokens=reported.reasoning_tokens,
        )

    def prompt_estimate(self) -> Quantities:
        """What the prompt alone has used: as the backend reported it already, else as it was counted."""
        reported = self._watch.latest
        return self.quantities(Usage(self._likely_prompt, 0) if reported is None else reported)

    def unfinished(self) -> list[int]:
        """The indexes of completions that have not ended."""
        return [index for index in range(self._completions) if index not in self._finished]

    def quantities(self, usage: Usage) -> Quantities:
        """The usage, with the prompt's images, as prices are applied to it."""
        return Quantities(
            prompt=usage.prompt_tokens,
            cached=usage.cached_tokens or 0,
            completion=usage.completion_tokens,
            images=self._images,
        )

    def _count_pending(self) -> None:
        if self._count_tokens is None:
            # A piece is a token at the least.
            self._counted += len(self._uncounted)
        else:
            self._counted += sum(map(self._count_tokens, self._uncounted))
        self._uncounted.clear()
