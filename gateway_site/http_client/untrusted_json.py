"""Decoding JSON of a backend, which may be anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway_site.api.errors import BackendFailed

T = TypeVar("T")

# Objects and arrays. A megabyte could hold hundreds of thousands, and decoding each takes the event loop a
# moment. No answer has as many; brackets in a text are counted with them.
MAX_NODES = 200_000
# In a large answer with the logprobs of every token and its alternatives.
LEAST_BYTES_BY_NODE = 15
# Less than this cannot hold too many.
MAX_UNCOUNTED_BYTES = 128 * 1024


def decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    """What `decode` makes of a backend's bytes, or BackendFailed."""
    if len(data) > MAX_UNCOUNTED_BYTES:
        nodes = data.count(b"{") + data.count(b"[")
        if nodes > max(MAX_NODES, len(data) // LEAST_BYTES_BY_NODE):
            raise BackendFailed
    try:
        return decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: bytes that are not UTF-8
        if b"NaN" not in data and b"Infinity" not in data:
            raise BackendFailed from None
    # Python servers write these where a number is missing. As null they are a figure that is not there,
    # not an answer that is lost. Encoded again, so that nothing gets in which we could not send on.
    try:
        value = json.loads(data, parse_constant=lambda name: None)
        return decode(msgspec.json.encode(value))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise BackendFailed from None
