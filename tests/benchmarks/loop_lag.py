"""
How long the event loop stands still while long prompts are read and counted.

    python -m tests.benchmarks.loop_lag [--rounds 3] [--vocabularies o200k_base,llama3,gemma3]

A task that does nothing but come round again tells the longest time in which nobody else's request could have
gone on. Reading is what a consumer does with a body, counting what admission does with its prompt; the least
of the rounds is shown, because the rest is the machine's. It fails if counting ever took the loop for more
than 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks.gateway.runs import say

MOST_COUNTING_MS = 20
CHARACTERS = (10_000, 100_000, 2_000_000)
TEXTS = {
    "English": "The quick brown fox jumps over the lazy dog, and it's 1234 times as fun. ",
    "one long word": "a",
    "Japanese": "日本語のテキストを数える",
    "emoji": "😀",
    "JSON": '{"a": [1, 2, 3], "b": "c\\n"}',
    "blanks": " \n",
}


@dataclass(slots=True)
class Lag:
    """The longest that the loop was away, since it was last asked."""

    _longest: float = 0.0

    async def watch(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self._longest = max(self._longest, now - last)
            last = now

    async def of(self, work: Callable[[], Awaitable[Any]]) -> float:
        """In milliseconds, while this is done."""
        await asyncio.sleep(0)
        self._longest = 0.0
        await work()
        await asyncio.sleep(0)
        return self._longest * 1000


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabularies", default="o200k_base,llama3,gemma3")
    return parser.parse_args(arguments)


async def measure(rounds: int, vocabularies: list[str]) -> float:
    """Print a line for each text, and return the longest that counting took the loop."""
    from billing.prices.card import PriceCard
    from inference import tokenizer
    from inference.dialects.base import RequestContext
    from inference.dialects.chat.dialect import CHAT
    from inference.serving.body_pool import BodyWork

    worst, lag, card = 0.0, Lag(), PriceCard.flat(prompt=1, completion=1)
    watching = asyncio.create_task(lag.watch())
    for vocabulary in vocabularies:
        await tokenizer.counter_ready(vocabulary)
        for name, unit in TEXTS.items():
            for size in CHARACTERS:
                text = (unit * (size // len(unit) + 1))[:size]
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                raw = json.dumps(body, ensure_ascii=False).encode()
                context = RequestContext(request_id=uuid.uuid4(), organization_id=uuid.uuid4())
                work = BodyWork.on(raw, context.organization_id)
                read = partial(work.run, CHAT.parse, raw, context)
                prompt = (await read()).prompt
                count = partial(tokenizer.size_of, prompt, vocabulary, is_exact=True, card=card, work=work)
                reading = [await lag.of(read) for _ in range(rounds)]
                counting = [await lag.of(count) for _ in range(rounds)]
                worst = max(worst, min(counting))
                say(
                    f"{vocabulary:12} {name:14} {size:>9,} characters:"
                    f" reading {min(reading):5.1f} ms, counting {min(counting):5.1f} ms",
                )
    watching.cancel()
    return worst


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_site.settings")
    with tempfile.TemporaryDirectory(prefix="gw-lag-") as directory:
        os.environ["GATEWAY_DATA_DIR"] = directory
        import django
        import uvloop

        django.setup()
        worst = uvloop.run(measure(options.rounds, options.vocabularies.split(",")))
    say(f"counting took the loop for {worst:.1f} ms at most (target: {MOST_COUNTING_MS})")
    return 0 if worst <= MOST_COUNTING_MS else 1


if __name__ == "__main__":
    sys.exit(main())
