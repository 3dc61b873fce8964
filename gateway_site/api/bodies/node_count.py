"""
How many values a JSON body holds, counted in its bytes before a single Python object is made of them.

Ten megabytes of `{},{},…` are three million objects: a second of parsing and half a gigabyte of memory for
whoever sends them. So the number of values is bounded (`GATEWAY_MAX_BODY_NODES`), and bodies above it are
refused by looking at their bytes. Commas and braces inside of strings do not count: a long program in one
string is one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.conf import settings

from gateway_site.api.bodies.checkpoints import checkpoint
from gateway_site.api.errors import InvalidRequest

# Looked at in one go; a fraction of a millisecond.
SLICE_BYTES = 64 * 1024
# The shortest value in a list is one digit and its comma.
MIN_BYTES_OF_NODE = 2

_BLANKS = b" \t\r\n"
_BACKSLASHES = re.compile(rb"\\*")
_NO_SEPARATORS = bytes(byte for byte in range(256) if byte not in b"{[,")


def require_bounded_nodes(body: bytes) -> None:
    """Refuse a body with more values than `GATEWAY_MAX_BODY_NODES`, the body itself included."""
    limit = settings.GATEWAY_MAX_BODY_NODES
    # In this order, because the first costs nothing, and the second a third of the last.
    if len(body) <= MIN_BYTES_OF_NODE * limit or _is_below(body, limit):
        return
    if count_nodes(body, limit) > limit:
        raise InvalidRequest(
            f"The body holds more than {limit} JSON values, which is the most that is accepted in one request"
            " (GATEWAY_MAX_BODY_NODES)."
        )


def most_nodes(body: bytes) -> int:
    """An upper bound on the values in the body: separators inside of strings are counted too."""
    return 1 + len(body.translate(None, _NO_SEPARATORS))


def count_nodes(body: bytes, limit: int | None = None) -> int:
    """
    How many values the body holds; above `limit`, any number above it.

    A list or an object of n values has n - 1 commas, so the commas and the containers that are not empty, and
    one for the outermost value, make the number. That is exact for JSON, and for what is not JSON as far as
    a parser would read it.
    """
    nodes, quotes = 1, 0
    is_inside, last = False, b""
    for piece in _unescaped_slices(body):
        between = piece.split(b'"')
        outside = b'"'.join(between[is_inside::2]).translate(None, _BLANKS)
        # A string from the slice before is something, so a bracket before it is not empty.
        outside = last + (b'"' if is_inside else b"") + outside
        nodes += outside.count(b",") + outside.count(b"{") + outside.count(b"[")
        nodes -= outside.count(b"{}") + outside.count(b"[]")
        # Kept for the pair that it may be half of. What it counts for itself was counted above.
        last = outside[-1:]
        nodes -= last in (b",", b"{", b"[")
        quotes += len(between) - 1
        is_inside ^= len(between) % 2 == 0
        # Each value may be a string and have a name: four quotes.
        if limit is not None and (nodes > limit or quotes > 4 * limit):
            return limit + 1
        checkpoint()
    return nodes + (last in (b",", b"{", b"["))


def _is_below(body: bytes, limit: int) -> bool:
    most = 0
    for start in range(0, len(body), SLICE_BYTES):
        most += most_nodes(body[start : start + SLICE_BYTES])
        if most > limit:
            return False
        checkpoint()
    return True


def _unescaped_slices(body: bytes) -> Iterator[bytes]:
    """The body piece by piece, without escaped quotes and backslashes: each quote that is left is one end."""
    start = 0
    while start < len(body):
        end = min(start + SLICE_BYTES, len(body))
        if body[end - 1 : end] == b"\\":
            # Where the number of backslashes is odd, the last one and what it escapes must not part.
            end = _BACKSLASHES.match(body, end).end() + 1  # type: ignore[union-attr]
        piece = body[start:end]
        start = end
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        yield piece
