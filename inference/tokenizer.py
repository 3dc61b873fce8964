"""
Counts the tokens of texts: before a request for its hold, after one where its backend reported no usage.

Vocabularies come with splintr; nothing is downloaded. Every model has one, its own or the nearest: see
`inference.catalog.vocabularies`. By the nearest one a prompt may be twice as long as it was counted, but
never longer than its UTF-8 bytes, because no token is shorter than one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import splintr
from msgspec import Struct

from billing.prices.card import PriceCard
from gateway_site.api.bodies.checkpoints import checkpoint
from inference.dialects.texts import files_of, prompt_texts, without_file_data
from inference.prompt import Prompt
from inference.serving.body_pool import SMALL, BodyWork

CountTokens = Callable[[str], int]

# As a model's `tokenizer` names them.
VOCABULARIES = (
    "o200k_base",
    "o200k_harmony",
    "cl100k_base",
    "llama3",
    "qwen2",
    "qwen3",
    "deepseek_v3",
    "gemma3",
    "glm4",
    "kimi_k2",
    "mistral_v3",
    "phi4",
)

# More is counted in a thread. There it goes in slices, because the tokenizer keeps the interpreter to
# itself for as long as a call takes.
CHARACTERS_COUNTED_AT_ONCE = 16_384
SLICE_CHARACTERS = 8_192
# What one call of the tokenizer takes, in characters that it could count meanwhile.
CALL_CHARACTERS = 32

# How far a vocabulary that is not the model's own may be off.
MOST_TIMES_NEAREST = 2
# What a chat template writes around the client's words, generously: a role and its marks, quotes and
# braces around each text of a tool, a default system message, the instructions for tools.
AROUND_A_TEXT = 4
AROUND_A_TURN = 8
AROUND_A_PROMPT = 128
AROUND_TOOLS = 256
# What is charged must not add what was not there: this is what the OpenAI cookbook counts.
LIKELY_AROUND_A_TURN = 4
LIKELY_AROUND_A_PROMPT = 3


class PromptSize(Struct, frozen=True):
    """The tokens of a prompt: `upper` for the hold, `likely` to be charged where a backend reports none."""

    upper: int
    likely: int
    # Counts the answer too.
    count_tokens: CountTokens


_loading = threading.Lock()


@lru_cache(maxsize=len(VOCABULARIES))
def _encoder(vocabulary: str) -> Callable[[str], list[int]]:
    tokenizer = splintr.Tokenizer.from_pretrained(vocabulary)
    # Tables are made when first needed, which takes longer than a request may wait for another.
    tokenizer.encode_ordinary("a" * 500)
    # Ordinary: `<|endoftext|>` in a prompt is thirteen characters, to the backend as well.
    encode: Callable[[str], list[int]] = tokenizer.encode_ordinary
    return encode


def counter(vocabulary: str) -> CountTokens:
    """A counter by this vocabulary. The first call for one takes half a second."""
    if vocabulary not in VOCABULARIES:
        raise ValueError(f"There is no vocabulary {vocabulary!r}.")
    # One at a time: the first requests of a process all come here at once, and each would load its own.
    with _loading:
        encode = _encoder(vocabulary)
    return lambda text: len(encode(text))


async def counter_ready(vocabulary: str) -> CountTokens:
    """A counter by this vocabulary, which is loaded in a thread if it was not."""
    made = _ready.get(vocabulary)
    if made is None:
        made = _ready[vocabulary] = await asyncio.to_thread(counter, vocabulary)
    return made


# Filled on the event loop, after the thread is done: what is here costs no waiting.
_ready: dict[str, CountTokens] = {}


async def size_of(
    prompt: Prompt, vocabulary: str, *, is_exact: bool, card: PriceCard, work: BodyWork = SMALL
) -> PromptSize:
    """
    Count the prompt as input. A large one is walked and counted in the pool of `work`.

    Images and files are held at what the card says that the model counts for one at most. Nobody knows what
    they are likely to come to, so that has none of it.
    """
    count = await counter_ready(vocabulary)
    if work.is_large:
        counted = await work.run_in_thread(_count_prompt, count, prompt)
    else:
        files, texts = _files_and_texts(prompt)
        if sum(map(len, texts)) <= CHARACTERS_COUNTED_AT_ONCE:
            tokens, utf8 = sum(map(count, texts)), sum(map(_bytes_of, texts))
            counted = _Counted(files=files, texts=len(texts), tokens=tokens, bytes=utf8)
        else:
            counted = await work.run_in_thread(_count_texts, count, files, texts)
    turns = len(prompt.turns)
    most = counted.tokens if is_exact else min(counted.bytes, counted.tokens * MOST_TIMES_NEAREST)
    upper = most + AROUND_A_TEXT * counted.texts + AROUND_A_TURN * turns + AROUND_A_PROMPT
    if prompt.tools or prompt.functions or prompt.answer_format is not None:
        upper += AROUND_TOOLS
    return PromptSize(
        upper=upper + card.image_tokens * prompt.images + card.file_tokens * counted.files,
        likely=counted.tokens + LIKELY_AROUND_A_TURN * turns + LIKELY_AROUND_A_PROMPT,
        count_tokens=count,
    )


class _Counted(Struct, frozen=True, kw_only=True):
    """What a prompt holds that is counted."""

    files: int
    # How many, and what they come to.
    texts: int
    tokens: int
    bytes: int


def _count_prompt(count: CountTokens, prompt: Prompt) -> _Counted:
    return _count_texts(count, *_files_and_texts(prompt))


def _count_texts(count: CountTokens, files: int, texts: list[str]) -> _Counted:
    return _Counted(
        files=files,
        texts=len(texts),
        tokens=count_pieces(count, _slices_of(texts)),
        bytes=count_pieces(_bytes_of, _slices_of(texts)),
    )


def _files_and_texts(prompt: Prompt) -> tuple[int, list[str]]:
    """The number of files, and the texts beside their data."""
    files = len(files_of(prompt))
    return files, list(prompt_texts(without_file_data(prompt) if files else prompt))


def count_pieces(count: CountTokens, pieces: Iterable[str]) -> int:
    """Count in a thread, and give the event loop the interpreter back every few thousand characters."""
    counted = weight = 0
    for piece in pieces:
        counted += count(piece)
        # A call by itself is work, however short the text.
        weight += len(piece) + CALL_CHARACTERS
        if weight >= SLICE_CHARACTERS:
            weight = 0
            checkpoint()
    return counted


def _slices_of(texts: Iterable[str]) -> Iterator[str]:
    # A cut adds a token at most where it splits one, so this errs to the side of the bound.
    for text in texts:
        for start in range(0, len(text), SLICE_CHARACTERS):
            yield text[start : start + SLICE_CHARACTERS]


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
