"""
Counts the tokens of texts: before a request for its hold, after one where its backend reported no usage.

Vocabularies come with splintr; nothing is downloaded. A model that names none is counted by its UTF-8 bytes,
a true upper bound, because no token is shorter than one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import splintr
from msgspec import Struct

from gateway_site.api.bodies.checkpoints import checkpoint
from inference.dialects.texts import prompt_texts
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

# What a chat template writes around the client's words, generously: a role and its marks, quotes and
# braces around each text of a tool, a default system message, the instructions for tools, an image.
AROUND_A_TEXT = 4
AROUND_A_TURN = 8
AROUND_A_PROMPT = 128
AROUND_TOOLS = 256
IN_AN_IMAGE = 1_700
# What is charged must not add what was not there: this is what the OpenAI cookbook counts.
LIKELY_AROUND_A_TURN = 4
LIKELY_AROUND_A_PROMPT = 3
# Where there is no vocabulary to count by: what the usual ones come to for English.
LIKELY_BYTES_IN_A_TOKEN = 4


class PromptSize(Struct, frozen=True):
    """The tokens of a prompt: `upper` for the hold, `likely` to be charged where a backend reports none."""

    upper: int
    likely: int
    # Counts the answer too. None where the model names no vocabulary.
    count_tokens: CountTokens | None = None


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
    """A counter by this vocabulary, or of bytes for `""`. The first call for one takes half a second."""
    if not vocabulary:
        return _count_bytes
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
_ready: dict[str, CountTokens] = {"": lambda text: _count_bytes(text)}


async def size_of(prompt: Prompt, vocabulary: str, work: BodyWork = SMALL) -> PromptSize:
    """Count the prompt as input. A large one is walked and counted in the pool of `work`."""
    count = await counter_ready(vocabulary)
    if work.is_large:
        texts, counted = await work.run_in_thread(_count_prompt, count, prompt)
    else:
        gathered = list(prompt_texts(prompt))
        texts = len(gathered)
        if sum(map(len, gathered)) <= CHARACTERS_COUNTED_AT_ONCE:
            counted = sum(map(count, gathered))
        else:
            counted = await work.run_in_thread(count_pieces, count, _slices_of(gathered))
    turns = len(prompt.turns)
    upper = counted + AROUND_A_TEXT * texts + AROUND_A_TURN * turns + AROUND_A_PROMPT
    if prompt.tools or prompt.functions or prompt.answer_format is not None:
        upper += AROUND_TOOLS
    likely = counted if vocabulary else counted // LIKELY_BYTES_IN_A_TOKEN
    return PromptSize(
        upper=upper + IN_AN_IMAGE * prompt.images,
        likely=likely + LIKELY_AROUND_A_TURN * turns + LIKELY_AROUND_A_PROMPT,
        count_tokens=count if vocabulary else None,
    )


def _count_prompt(count: CountTokens, prompt: Prompt) -> tuple[int, int]:
    texts = list(prompt_texts(prompt))
    return len(texts), count_pieces(count, _slices_of(texts))


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


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
