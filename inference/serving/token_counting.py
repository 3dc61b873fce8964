"""
How many tokens an input comes to: asked of the backend where one can count, else counted with the model's
vocabulary, which is its own or the nearest one.

Nothing is generated, held or charged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway_site.api.errors import BackendError, ProviderRejected
from inference import tokenizer
from inference.backends.conversation import encode_json
from inference.catalog import served_models
from inference.catalog.served_models import Target
from inference.dialects.messages.parse import ParsedCountRequest
from inference.serving.body_pool import SMALL, BodyWork
from inference.tokenizer import CountTokens
from organization.models import ProjectKey

logger = logging.getLogger(__name__)

# A count that takes longer is not worth it: ours comes at once.
BACKEND_SECONDS = 10
# What a model makes of an image, as a rule. A hold assumes the most that the model's price card says.
IN_AN_IMAGE = 1_700
# A scanned page is about as much as an image, and its text comes on top.
IN_A_PAGE = 2_000

# Where no token can be in two: between a letter and what is neither a letter, a digit nor an apostrophe
# ("don't" is one word). So a text that is counted in pieces comes to what it does as a whole.
_SEAM = re.compile(
    r"(?<=[A-Za-z\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3])(?=[ \n,.;:!?()\[\]{}\"\u3001\u3002])"
)
MAX_STRETCH = 4


async def count(call: ParsedCountRequest, key: ProjectKey, work: BodyWork = SMALL) -> int:
    """Input tokens of the call, for the model that it names, if this key's organization may use that."""
    model = await served_models.served_model(call.model, key)
    for target in model.targets:
        counted = await _count_upstream(target, call, work)
        if counted is not None:
            return counted
    counter = await tokenizer.counter_ready(model.tokenizer)
    counted = await work.run_in_thread(count_texts, counter, call.texts)
    return (
        counted
        + tokenizer.LIKELY_AROUND_A_TURN * call.turns
        + tokenizer.LIKELY_AROUND_A_PROMPT
        + IN_AN_IMAGE * call.images
        + IN_A_PAGE * call.pages
    )


async def _count_upstream(target: Target, call: ParsedCountRequest, work: BodyWork) -> int | None:
    """The backend's own count; None where it has none to give, now or ever."""

    async def encode(body: Mapping[str, Any]) -> bytes:
        return await work.run(encode_json, body)

    try:
        async with asyncio.timeout(BACKEND_SECONDS):
            return await target.backend.count_tokens({"model": target.model, **call.upstream}, encode)
    except ProviderRejected:
        raise
    except (BackendError, TimeoutError) as error:
        logger.warning("%s counts no tokens: %s", target.name, error)
        return None


def count_texts(counter: CountTokens, texts: Iterable[str]) -> int:
    """Exactly, and in pieces: the tokenizer keeps the interpreter to itself for as long as a call takes."""
    return tokenizer.count_pieces(counter, (piece for text in texts for piece in pieces_of(text)))


def pieces_of(text: str, size: int = tokenizer.SLICE_CHARACTERS) -> Iterator[str]:
    """The text in pieces of about `size` characters, cut only where no token is."""
    start = 0
    while len(text) - start > size:
        seam = _SEAM.search(text, start + size, start + MAX_STRETCH * size)
        # Without a seam for so long it is no language; a token more or less is as good a count.
        end = start + MAX_STRETCH * size if seam is None else seam.start()
        yield text[start:end]
        start = end
    yield text[start:]
