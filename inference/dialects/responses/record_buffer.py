"""The typed events of one stream as records of server-sent events, numbered from 0."""

from __future__ import annotations

from typing import Any

import msgspec

from inference.dialects.sse import escape_line_breaks

_encode = msgspec.json.Encoder().encode


class RecordBuffer:
    """
    Collects the records of a stream until they are taken.

    `is_streaming` is False where one JSON object is made of the same events, which needs no records.
    """

    def __init__(self) -> None:
        self.is_streaming = False
        self._waiting: list[bytes] = []
        self._next = 0

    def append(self, type: str, fields: dict[str, Any]) -> None:
        if self.is_streaming:
            data = _encode({"type": type, **fields, "sequence_number": self._next})
            self._next += 1
            self._waiting.append(
                b"event: " + type.encode() + b"\ndata: " + escape_line_breaks(data) + b"\n\n"
            )

    def take(self) -> bytes:
        records = b"".join(self._waiting)
        self._waiting.clear()
        return records

    def text_delta(self, prefix: bytes, text: str) -> bytes:
        """Encode the record of a text delta, the most frequent one, after what `text_delta_prefix` gave."""
        encoded = _encode(text)
        if not text.isascii():
            encoded = escape_line_breaks(encoded)
        number = self._next
        self._next = number + 1
        return prefix + encoded + b',"logprobs":[],"sequence_number":%d}\n\n' % number


def text_delta_prefix(type: str, fields: dict[str, Any]) -> bytes:
    """Encode the beginning of every record of this type, up to its text."""
    data = _encode({"type": type, **fields, "delta": ""}).removesuffix(b'""}')
    return b"event: " + type.encode() + b"\ndata: " + data
