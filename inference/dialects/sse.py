"""Server-sent events: JSON written so that a record stays one line to every reader."""

from __future__ import annotations

# Inside JSON these are plain characters. But many clients cut lines where Python's `splitlines` does,
# and would cut a record in two.
_LINE_BREAKS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


def escape_line_breaks(encoded: bytes) -> bytes:
    """Escape in encoded JSON what some readers take for the end of a line."""
    if not encoded.isascii():
        for raw, escape in _LINE_BREAKS:
            encoded = encoded.replace(raw, escape)
    return encoded
