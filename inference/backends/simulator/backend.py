"""
A backend without a network, the same answer every time. The embedded default, and what tests run on.

It honours n, stop, seed, the output bound, tools, functions, json_schema, json_object, reasoning, logprobs
and web_search_options. A model's name says how it behaves, like the test cards of a payment system; the part
before the last `/` does not matter.

| model            | answers                                                                                |
|------------------|----------------------------------------------------------------------------------------|
| `echo`           | the last message of the user, word by word                                             |
| `words`          | a few words, chosen by the seed                                                        |
| `thinker`        | as `words`, and thinks first, asked or not                                             |
| `endless`        | until the output bound; finishes with `length`                                         |
| `paced-100x50`   | 100 words, 50 a second (0: as fast as they go). Any two numbers                        |
| `refusal`        | with a refusal                                                                         |
| `filtered`       | some words; finishes with `content_filter`                                             |

| model                | fails                                                    | a client sees          |
|----------------------|----------------------------------------------------------|------------------------|
| `fails-refused`      | no connection                                            | 502                    |
| `fails-rejected`     | upstream 400                                             | 422                    |
| `fails-busy`         | upstream 429                                             | 429                    |
| `fails-500`          | upstream 500                                             | 502                    |
| `fails-501`          | upstream 501                                             | 501                    |
| `fails-reset`        | connection lost after the request, before an answer      | 502, cost unknown      |
| `fails-slow-30`      | first word after 30 seconds (any number), then as `echo` | 504, or a late answer  |
| `fails-hang`         | no answer, ever                                          | 504                    |
| `fails-hang-midway`  | a few words, then nothing                                | error record           |
| `fails-cut-midway`   | a few words, then the connection is lost                 | error record           |

| model            | answers as `echo` and reports                                                          |
|------------------|----------------------------------------------------------------------------------------|
| `usage-none`     | no usage                                                                               |
| `usage-garbage`  | usage that is not counts                                                               |
| `usage-zero`     | zero tokens, although there was text                                                   |
| `usage-huge`     | more completion tokens than the bound allows                                           |
| `usage-falling`  | usage twice, the second less than the first                                            |
| `usage-cached`   | half of the prompt read from a cache                                                   |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

from gateway_site.api.errors import (
    BackendBusy,
    BackendFailed,
    BackendUnreachable,
    ProviderRejected,
    UnsupportedOption,
)
from inference.backends.base import Dispatch, InferenceBackend
from inference.backends.simulator.script import Behaviour, Script
from inference.dialects.texts import prompt_texts
from inference.events import Event, Finish, Usage
from inference.prompt import Prompt
from inference.tokenizer import CountTokens

ECHO = Behaviour(echoes=True)
BEHAVIOURS = {
    "echo": ECHO,
    "words": Behaviour(),
    "thinker": Behaviour(thinks=True),
    "endless": Behaviour(endless=True),
    "refusal": Behaviour(refuses=True),
    "filtered": Behaviour(filtered=True),
    "fails-hang-midway": Behaviour(),
    "fails-cut-midway": Behaviour(),
    "usage-none": ECHO,
    "usage-garbage": ECHO,
    "usage-zero": ECHO,
    "usage-huge": ECHO,
    "usage-falling": ECHO,
    "usage-cached": ECHO,
}
WORDS_BEFORE_FAILURE = 3
# One suspension in so many rounds lets the other requests of the process run.
ROUNDS_BETWEEN_YIELDS = 16
# Counting more than this, or what is no plain text, would hold up the other requests; it is done in a thread.
CHARACTERS_COUNTED_AT_ONCE = 16_384
TURNS_COUNTED_AT_ONCE = 100

_PACED = re.compile(r"paced-([0-9]{1,6})x([0-9]{1,6})")
_SLOW = re.compile(r"fails-slow-([0-9]{1,4})")


class SimulatorBackend(InferenceBackend):
    """Answers from a script: no network, no server, the same answer every time."""

    lacks = frozenset({"audio", "modalities", "other_input", "other_tools", "prompt_logprobs"})

    def __init__(
        self, count_tokens: CountTokens, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._count = count_tokens
        self._sleep = sleep
        # How many generations are under way: what an upstream would call its open connections.
        self.running = 0

    async def generate(
        self, prompt: Prompt, *, model: str, dispatch: Dispatch
    ) -> AsyncGenerator[Event, None]:
        name = model.rpartition("/")[2]
        if name == "fails-refused":
            raise BackendUnreachable()
        await dispatch()
        self.running += 1
        try:
            behaviour, pause = await self._prepare(name)
            scripts = [Script(prompt, index, behaviour, self._count) for index in range(prompt.completions)]
            fails_midway = name.endswith("-midway")
            for rounds, events in enumerate(_interleave(scripts)):
                if fails_midway and (rounds == WORDS_BEFORE_FAILURE or _has_finish(events)):
                    await self._fail_midway(name)
                if pause or rounds % ROUNDS_BETWEEN_YIELDS == 0:
                    await self._sleep(pause)
                for event in events:
                    yield event
            prompt_tokens = await self._prompt_tokens(prompt)
            for usage in _usage(name, prompt, prompt_tokens, scripts):
                yield usage
        finally:
            self.running -= 1

    async def _prepare(self, name: str) -> tuple[Behaviour, float]:
        """The model's behaviour and its pause between words; or the failure that the model exists for."""
        match name:
            case "fails-rejected":
                raise ProviderRejected("The simulator rejects every request to this model.")
            case "fails-busy":
                raise BackendBusy(retry_after_seconds=2)
            case "fails-500":
                raise BackendFailed(is_free=True)
            case "fails-501":
                raise UnsupportedOption(param="model")
            case "fails-reset":
                raise BackendFailed()
            case "fails-hang":
                await asyncio.Event().wait()
        if paced := _PACED.fullmatch(name):
            words, rate = int(paced[1]), int(paced[2])
            return Behaviour(length=words), 1 / rate if rate else 0
        if slow := _SLOW.fullmatch(name):
            await self._sleep(int(slow[1]))
            return ECHO, 0
        if name not in BEHAVIOURS:
            raise ProviderRejected(f"The simulator has no model named {name[:100]}.", param="model")
        return BEHAVIOURS[name], 0

    async def _fail_midway(self, name: str) -> None:
        if name == "fails-hang-midway":
            await asyncio.Event().wait()
        raise BackendFailed()

    async def _prompt_tokens(self, prompt: Prompt) -> int:
        contents = [turn.content for turn in prompt.turns[: TURNS_COUNTED_AT_ONCE + 1]]
        characters = sum(len(text) for text in contents if isinstance(text, str))
        has_parts = any(type(content) is tuple for content in contents)
        is_plain = not prompt.tools and prompt.answer_format is None and not has_parts
        if is_plain and len(contents) <= TURNS_COUNTED_AT_ONCE and characters < CHARACTERS_COUNTED_AT_ONCE:
            return sum(map(self._count, prompt_texts(prompt)))
        return await asyncio.to_thread(lambda: sum(map(self._count, prompt_texts(prompt))))


def _usage(name: str, prompt: Prompt, prompt_tokens: int, scripts: list[Script]) -> Iterator[Usage]:
    completion_tokens = sum(script.tokens for script in scripts)
    reasoning_tokens = sum(script.reasoning_tokens for script in scripts)
    reported: list[Usage | None]
    match name:
        case "usage-none":
            reported = []
        case "usage-garbage":
            reported = [Usage.checked(-prompt_tokens, f"{completion_tokens}")]
        case "usage-zero":
            reported = [Usage(0, 0)]
        case "usage-huge":
            reported = [Usage(prompt_tokens, prompt.output_bound * prompt.completions + 1000)]
        case "usage-falling":
            reported = [Usage(prompt_tokens, completion_tokens + 10), Usage(prompt_tokens, completion_tokens)]
        case "usage-cached":
            reported = [
                Usage(
                    prompt_tokens,
                    completion_tokens,
                    cached_tokens=prompt_tokens // 2,
                    reasoning_tokens=reasoning_tokens,
                )
            ]
        case _:
            reported = [
                Usage(prompt_tokens, completion_tokens, cached_tokens=0, reasoning_tokens=reasoning_tokens)
            ]
    yield from (usage for usage in reported if usage is not None)


def _interleave(scripts: list[Script]) -> Iterator[list[Event]]:
    """One event of every completion that is not done, round by round: answers interleave, as real ones do."""
    running = [script.events() for script in scripts]
    while running:
        events = [next(script) for script in running]
        yield events
        running = [
            script for script, event in zip(running, events, strict=True) if not isinstance(event, Finish)
        ]


def _has_finish(events: list[Event]) -> bool:
    return any(isinstance(event, Finish) for event in events)
