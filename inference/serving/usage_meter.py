"""Counts what one request has used so far: as its backend reports it, else by the events that passed."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from billing.models import ChargeBasis
from billing.prices.price import Quantities
from inference.backends.usage import Alert, UsageWatch
from inference.events import MAX_SEARCHES_REPORTED, Event, Finish, TextDelta, Usage, WebSearch
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
# A report of so many times what a request can have used is nonsense, and not believed: what is used beyond a
# hold is charged, and a backend's mistake must not cost a customer all its credit.
NONSENSE_FACTOR: Final = 10
ALWAYS_CREDIBLE_TOKENS: Final = 10_000


class UsageMeter:
    """
    Follows the events of one request, and knows its usage at any moment.

    What the backend reported is believed, and what came after its report is counted on top of it. Texts are
    counted piece by piece, as they came: most backends send a token at a time, and what was generated in
    pieces is paid for in pieces. Usage is unknown only where nothing was seen and the backend has reported
    nothing; what the prompt comes to is known even then.
    """

    def __init__(
        self,
        *,
        completions: int,
        images: int,
        likely_prompt: int,
        most_prompt: int,
        output_bound: int,
        count_tokens: CountTokens,
        alert: Alert,
    ) -> None:
        self._completions = completions
        # Of all completions together.
        self._output_bound = output_bound * completions
        self._credible_prompt = NONSENSE_FACTOR * most_prompt + ALWAYS_CREDIBLE_TOKENS
        self._credible_completion = NONSENSE_FACTOR * self._output_bound + ALWAYS_CREDIBLE_TOKENS
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
        # Whether the last report came after the end of every completion.
        self._is_whole_reported = False
        # Whether any event has come, and whether any of the answer was generated.
        self._has_begun = False
        self.has_output = False
        # Searches that the backend showed, which not every one counts in its report.
        self._searches = 0

    def count(self, event: Event) -> None:
        """Count an event's billable text. Usage events go to `report`."""
        self._has_begun = True
        if type(event) is TextDelta:
            text = event.text  # as its property, which would be a call for nearly every event
        elif type(event) is Finish:
            self._finished.add(event.index)
            return
        else:
            text = event.billable_text
            if type(event) is WebSearch and self._searches < MAX_SEARCHES_REPORTED:
                self._searches += 1
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
        if usage.prompt_tokens > self._credible_prompt or usage.completion_tokens > self._credible_completion:
            self._watch.warn("many times what the request can have used")
            return
        earlier = self._watch.latest
        if not self.has_output:
            # Of the input alone, perhaps by a backend that another one now answers for: it may be less now.
            self._watch.latest = None
        believed = self._watch.report(
            usage.prompt_tokens,
            usage.completion_tokens,
            has_output=self.has_output,
            **usage.details,
        )
        if believed is None:
            self._watch.latest = earlier
        else:
            self._uncounted.clear()
            self._counted = 0
            self._is_whole_reported = len(self._finished) >= self._completions
            self.has_output = self.has_output or believed.completion_tokens > 0

    @property
    def basis(self) -> ChargeBasis:
        """USAGE where the backend itself reported the whole: after every Finish, and nothing came later."""
        is_reported = self._is_whole_reported and not self._uncounted and not self._counted
        return ChargeBasis.USAGE if is_reported else ChargeBasis.OBSERVED

    def usage(self) -> Usage | None:
        """The usage so far, or None where nothing was seen and nothing reported."""
        reported = self._watch.latest
        if reported is None and not self._has_begun:
            return None
        self._count_pending()
        if reported is None:
            return Usage(self._likely_prompt, self._within_bound(self._counted))
        completion_tokens = self._within_bound(reported.completion_tokens + self._counted)
        if completion_tokens >= reported.completion_tokens:
            return structs.replace(reported, completion_tokens=completion_tokens)
        return Usage.checked(reported.prompt_tokens, completion_tokens, **reported.details)

    def prompt_estimate(self) -> Quantities:
        """
        What the prompt alone comes to, as the backend reported it, else as it was counted at admission.

        For a request that is charged although nothing is known of its answer.
        """
        reported = self._watch.latest
        if reported is None:
            return Quantities(prompt=self._likely_prompt, images=self._images)
        return self.quantities(
            structs.replace(
                reported, completion_tokens=0, reasoning_tokens=None, audio_output_tokens=None, web_searches=0
            )
        )

    def unfinished(self) -> list[int]:
        """The indexes of completions that have not ended."""
        return [index for index in range(self._completions) if index not in self._finished]

    def quantities(self, usage: Usage) -> Quantities:
        """The usage as prices are applied to it, with the prompt's images and the searches that were seen."""
        return Quantities(
            prompt=usage.prompt_tokens,
            cached=usage.cached_tokens or 0,
            cache_write=usage.cache_write_tokens or 0,
            cache_write_1h=usage.cache_write_1h_tokens or 0,
            audio_input=usage.audio_input_tokens or 0,
            completion=usage.completion_tokens,
            reasoning=usage.reasoning_tokens or 0,
            audio_output=usage.audio_output_tokens or 0,
            images=self._images,
            web_searches=self._searches if usage.web_searches is None else usage.web_searches,
        )

    def _within_bound(self, completion_tokens: int) -> int:
        """So many, unless the answer was cut: what went past its bound is not the customer's to pay."""
        return min(completion_tokens, self._output_bound) if self.is_past_bound else completion_tokens

    def _count_pending(self) -> None:
        self._counted += sum(map(self._count_tokens, self._uncounted))
        self._uncounted.clear()
