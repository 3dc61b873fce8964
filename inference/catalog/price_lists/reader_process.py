"""
Ask the price list in a process of its own, so that the server never loads the library that reads it.

Loading takes a third of a second of one core, which the requests of other customers would wait for, and
tens of megabytes that a server would keep.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec
from django.conf import settings

from gateway_site.api.errors import Conflict
from inference.catalog.price_lists.entries import PriceAnswers, PriceQuestion
from inference.catalog.price_lists.synchronization import require_library

TIMEOUT_SECONDS = 60


def answer(questions: list[PriceQuestion]) -> PriceAnswers:
    """What the list says of these models. Blocks until the other process has answered."""
    require_library()
    try:
        # Fixed words and no shell; the models go in as JSON.
        done = subprocess.run(
            [sys.executable, "-m", "inference.catalog.price_lists"],
            input=msgspec.json.encode(questions),
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
