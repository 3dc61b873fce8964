"""
Ask the price list in a process of its own, so that the server never loads the library that reads it.

Loading takes a third of a second of one core, which the requests of other customers would wait for, and
tens of megabytes that a server would keep. What was answered is kept for a minute: a person reads the page,
chooses and confirms.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import msgspec
from django.conf import settings

from gateway_site.api.errors import Conflict
from inference.catalog.price_lists.entries import PriceAnswers, PriceQuestion
from inference.catalog.price_lists.synchronization import require_library

TIMEOUT_SECONDS = 30
KEPT_SECONDS = 60.0


def answer(questions: list[PriceQuestion]) -> PriceAnswers:
    """What the list says of these models. Blocks until the other process has answered."""
    global _kept
    require_library()
    written = msgspec.json.encode(questions)
    # One process at a time, however often somebody reloads the page.
    if not _reading.acquire(timeout=TIMEOUT_SECONDS):
        raise Conflict("The price list is being read for others. Try again.")
    try:
        if _kept is None or _kept[0] != written or time.monotonic() - _kept[1] > KEPT_SECONDS:
            _kept = (written, time.monotonic(), _ask(written))
        return _kept[2]
    finally:
        _reading.release()


def forget() -> None:
    """Drop what was answered, so that the next question is asked anew."""
    global _kept
    _kept = None


def _ask(written: bytes) -> PriceAnswers:
    try:
        # Fixed words and no shell; the models go in as JSON.
        done = subprocess.run(
            [sys.executable, "-m", "inference.catalog.price_lists"],
            input=written,
            capture_output=True,
            cwd=settings.BASE_DIR,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise Conflict(f"The price list did not answer within {TIMEOUT_SECONDS} seconds.") from None
    except subprocess.CalledProcessError as problem:
        last_line = problem.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Conflict(f"The price list could not be read: {last_line[:300]}") from None
    return msgspec.json.decode(done.stdout, type=PriceAnswers)


_reading = threading.Lock()
_kept: tuple[bytes, float, PriceAnswers] | None = None
