"""The typed events of one stream as records, numbered from 0."""

from __future__ import annotations

from typing import Any

import msgspec

from inference.dialects.sse import escape_line_breaks

_encode = msgspec.json.Encoder().encode


class Records:
    """
    Collects records until they are taken.

    `is_on` is False where one JSON object is made of the same events, which needs none.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._waiting: list[bytes] = []
        self._next = 0

    def tell(self, type: str, fields: dict[str, Any]) -> None:
        if self.is_on:
            data = _encode({"type": type, **fields, "sequence_number": self._next})
            self._next += 1
            self._waiting.append(
                b"event: " + type.encode() + b"\ndata: " + escape_line_breaks(data) + b"\n\n"
            )

    def take(self) -> bytes:
        records = b"".join(self._waiting)
        self._waiting.clear()
        return records

    def text_delta(self, opening: bytes, text: str) -> bytes:
        """One record at once, for what is said most often: `opening` is what `opening_of` gave."""
        encoded = _encode(text)
        if not text.isascii():
            encoded = escape_line_breaks(encoded)
        number = self._next
        self._next = number + 1
        return opening + encoded + b',"logprobs":[],"sequence_number":%d}\n\n' % number


def opening_of(type: str, fields: dict[str, Any]) -> bytes:
    """The beginning of every record of this type, up to its text."""
    data = _encode({"type": type, **fields, "delta": ""}).removesuffix(b'""}')
    return b"event: " + type.encode() + b"\ndata: " + data
