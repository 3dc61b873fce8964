"""The script of one completion of the simulator: its events, token by token, within the output bound."""

from __future__ import annotations

import itertools
import json
import random
import re
import zlib
from collections.abc import Iterator

from msgspec import Struct

from gateway_site.api.errors import ProviderRejected
from inference.backends.simulator.schema_instance import instance_of
from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    FunctionCallArguments,
    FunctionCallStart,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
    TopLogprob,
    WebSearch,
)
from inference.prompt import JsonObject, JsonSchema, NamedTool, Prompt, TextPart, Tool
from inference.tokenizer import CountTokens

# fmt: off
WORDS = (
    "amber", "bridge", "candle", "delta", "ember", "field", "garden", "harbor", "island", "juniper", "kettle",
    "lantern", "meadow", "north", "orchard", "paper", "quiet", "river", "silver", "timber", "violet",
)
# fmt: on
# A word with the blanks before it and the line's end after it. Tokenizers split there too, so the counts
# of pieces add up to the count of the text.
_PIECE = re.compile(r"\s*\S+[\r\n]*|\s+")
MAX_TOP_LOGPROBS = 20
MAX_PARALLEL_CALLS = 4


class Behaviour(Struct, frozen=True, kw_only=True):
    """How a model of the simulator answers."""

    echoes: bool = False
    endless: bool = False
    refuses: bool = False
    thinks: bool = False
    filtered: bool = False
    # Exactly so many words, 0 for a few.
    length: int = 0


class Script:
    """
    The events of one completion, and what they cost.

    `tokens` and `reasoning_tokens` are what was generated so far, so they are right at any moment of a
    stream, and when it is cut off.
    """

    def __init__(self, prompt: Prompt, index: int, behaviour: Behaviour, count: CountTokens) -> None:
        self._prompt = prompt
        self._index = index
        self._behaviour = behaviour
        self._count = count
        self._seed = seed_of(prompt) + index
        self._random = random.Random(self._seed)
        self.tokens = 0
        self.reasoning_tokens = 0
        self._is_full = False

    def events(self) -> Iterator[Event]:
        yield from self._reasoning()
        reason: FinishReason = "stop"
        if (calls := self._calls()) and not self._is_full:
            reason = "function_call" if self._prompt.functions else "tool_calls"
            yield from calls
        elif not self._is_full:
            yield from self._answer()
            reason = "content_filter" if self._behaviour.filtered else "stop"
        yield Finish(self._index, "length" if self._is_full else reason)

    # --- Parts of an answer ---

    def _reasoning(self) -> Iterator[Event]:
        reasoning = self._prompt.reasoning
        wanted = reasoning.enabled or reasoning.max_tokens or reasoning.effort not in (None, "none")
        if not self._behaviour.thinks and (not wanted or reasoning.enabled is False):
            return
        budget = reasoning.max_tokens or 1_000_000
        for piece in _PIECE.findall("The question is clear. " + self._words(8)):
            cost = self._count(piece)
            if self.reasoning_tokens + cost > budget or not self._afford(cost):
                return
            self.reasoning_tokens += cost
            yield ReasoningDelta(self._index, piece)

    def _answer(self) -> Iterator[Event]:
        make = RefusalDelta if self._behaviour.refuses else TextDelta
        wants_logprobs = self._prompt.sampling.logprobs
        characters = 0
        if self._prompt.web_search_options is not None:
            query = self._words(3).strip()
            if not self._afford(self._count(query)):
                return
            yield WebSearch(self._index, query)
        for piece in self._pieces():
            if not self._afford(self._count(piece)):
                return
            characters += len(piece)
            yield make(self._index, piece, self._logprobs(piece) if wants_logprobs else None)
        if self._prompt.web_search_options is not None:
            yield Annotation(self._index, "https://example.com/", "Example Domain", 0, characters)

    def _calls(self) -> Iterator[Event] | None:
        prompt = self._prompt
        if prompt.functions:
            tools, choice = prompt.functions, prompt.function_call
        else:
            tools, choice = prompt.tools, prompt.tool_choice
        tools = tuple(tool for tool in tools if tool.name is not None)
        if isinstance(choice, NamedTool):
            tools = tuple(tool for tool in tools if tool.name == choice.name)
            if not tools:
                raise ProviderRejected("The tool that must be called is not among the tools.")
        elif choice == "none" or (
            choice != "required" and prompt.turns[-1].role not in ("user", "developer")
        ):
            # An answer to a tool's result is text, so that a client's loop comes to an end.
            return None
        if not tools:
            return None
        if prompt.functions:
            return self._function_call(tools[0])
        return self._tool_calls(tools[:MAX_PARALLEL_CALLS] if prompt.parallel_tool_calls else tools[:1])

    def _tool_calls(self, tools: tuple[Tool, ...]) -> Iterator[Event]:
        for call, tool in enumerate(tools):
            if not self._afford(self._count(tool.name or "")):
                return
            identifier = f"call_{self._random.getrandbits(64):016x}"
            yield ToolCallStart(self._index, call, identifier, tool.name or "")
            for piece in self._arguments(tool):
                yield ToolCallArguments(self._index, call, piece)

    def _function_call(self, function: Tool) -> Iterator[Event]:
        if self._afford(self._count(function.name or "")):
            yield FunctionCallStart(self._index, function.name or "")
            for piece in self._arguments(function):
                yield FunctionCallArguments(self._index, piece)

    def _arguments(self, tool: Tool) -> Iterator[str]:
        arguments = instance_of(tool.parameters or {"type": "object"}, self._seed)
        for piece in _PIECE.findall(json.dumps(arguments, ensure_ascii=False)):
            if not self._afford(self._count(piece)):
                return
            yield piece

    # --- Words ---

    def _pieces(self) -> Iterator[str]:
        text = self._text()
        # Endless text repeats itself, so what it will ever hold is in its first rounds.
        window = text * 3 if self._behaviour.endless else text
        stops = [start for stop in self._prompt.sampling.stop if stop and (start := window.find(stop)) >= 0]
        if stops:
            return (match[0] for match in _PIECE.finditer(window[: min(stops)]))
        if self._behaviour.endless:
            return itertools.cycle(_PIECE.findall(text))
        # Not findall: the text may be megabytes, of which the bound lets a few words through.
        return (match[0] for match in _PIECE.finditer(text))

    def _text(self) -> str:
        wanted = self._prompt.answer_format
        if self._behaviour.refuses:
            return "I am sorry, I cannot help with that."
        if isinstance(wanted, JsonSchema):
            return json.dumps(instance_of(wanted.schema, self._seed), ensure_ascii=False)
        if isinstance(wanted, JsonObject):
            return json.dumps({"answer": self._words(3)})
        if self._behaviour.echoes:
            return last_user_text(self._prompt)
        if self._behaviour.length:
            return self._words(self._behaviour.length)
        return self._words(self._random.randint(12, 40)).capitalize() + "."

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(WORDS, k=count))

    # --- Cost ---

    def _afford(self, cost: int) -> bool:
        if self.tokens + cost > self._prompt.output_bound:
            self._is_full = True
            return False
        self.tokens += cost
        return True

    def _logprobs(self, piece: str) -> Logprobs:
        count = self._prompt.sampling.top_logprobs or 0
        if not 0 <= count <= MAX_TOP_LOGPROBS:
            raise ProviderRejected(f"top_logprobs must be 0 to {MAX_TOP_LOGPROBS}.", param="top_logprobs")
        best = -self._random.random() / 10
        others = [(piece, best)] + [(f" {word}", best - 1 - rank) for rank, word in enumerate(WORDS[:count])]
        top = tuple(TopLogprob(token, value, tuple(token.encode())) for token, value in others[:count])
        return (TokenLogprob(piece, best, tuple(piece.encode()), top),)


def seed_of(prompt: Prompt) -> int:
    """The client's seed, or one that the same prompt always gives."""
    seed = prompt.sampling.seed
    return zlib.crc32(last_user_text(prompt).encode()) if seed is None else seed


def last_user_text(prompt: Prompt) -> str:
    """The text of the last message of the user."""
    for turn in reversed(prompt.turns):
        if turn.role == "user":
            if isinstance(turn.content, tuple):
                return " ".join(part.text for part in turn.content if isinstance(part, TextPart))
            return turn.content or ""
    return ""
