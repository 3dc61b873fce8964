"""
Server-sent events, decoded from bytes as they arrive. Pure: no network, no clock.

Lines end at CR, LF or CRLF and at nothing else. `str.splitlines` also cuts at U+2028, which JSON allows
inside a string, so bytes are split here and never text. What comes from a backend is untrusted: one
record and the whole stream are bounded.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

MAX_RECORD_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 256 * 1024 * 1024

_PLAIN_RECORD = re.compile(rb"data: ([^\n]*)\n\n")
_AROUND_A_LINE = len(b"data: \n\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Record(NamedTuple):
    event: str
    data: bytes


# What `Record(…)` does, without the function in between that makes it half as quick.
_record = partial(tuple.__new__, Record)


class StreamTooLarge(Exception):
    """A record or the stream as a whole went over its bound."""


class Decoder:
    """Feed it chunks cut anywhere; it gives the records that each chunk completes."""

    def __init__(
        self, *, max_record_bytes: int = MAX_RECORD_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES
    ) -> None:
        self._max_record_bytes = max_record_bytes
        self._bytes_left = max_stream_bytes
        # Of a record that is not complete yet.
        self.pending = bytearray()
        self._is_after_cr = False
        self._is_at_start = True

    def feed(self, chunk: bytes) -> list[Record]:
        if not chunk:
            return []
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise StreamTooLarge
        if not self.pending and not self._is_after_cr and (lines := self._plain_lines(chunk)):
            self._is_at_start = False
            return [_record(("", line)) for line in lines]
        if self._is_after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        if self._is_at_start:
            chunk = self._without_mark(chunk)
        # Joined only when the chunk completes a record: a line that drips in byte by byte would
        # otherwise be copied once for every byte.
        if b"\n\n" not in (bytes(self.pending[-1:]) + chunk if self.pending else chunk):
            self._keep(chunk)
            return []
        *blocks, rest = (bytes(self.pending) + chunk if self.pending else chunk).split(b"\n\n")
        self.pending.clear()
        self._keep(rest)
        return self._records(blocks)

    def _plain_lines(self, chunk: bytes) -> list[bytes]:
        """The data of what nearly every chunk is: whole records of one line each. Worth a short way."""
        if len(chunk) > self._max_record_bytes or b"\r" in chunk:
            return []
        lines: list[bytes] = _PLAIN_RECORD.findall(chunk)
        # As long as the chunk, so there was nothing between them.
        return lines if sum(map(len, lines)) + _AROUND_A_LINE * len(lines) == len(chunk) else []

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        """The chunk with each line end as one LF. A CR counts at once; an LF right after it is dropped."""
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._is_after_cr = False
            if not chunk:
                return chunk
        self._is_after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_mark(self, chunk: bytes) -> bytes:
        opening = bytes(self.pending) + chunk
        if _BYTE_ORDER_MARK.startswith(opening):
            return chunk  # too short to tell, or the mark and no more yet
        self._is_at_start = False
        self.pending.clear()
        return opening.removeprefix(_BYTE_ORDER_MARK)

    def _keep(self, chunk: bytes) -> None:
        self.pending += chunk
        if len(self.pending) > self._max_record_bytes:
            raise StreamTooLarge

    def _records(self, blocks: list[bytes]) -> list[Record]:
        records = []
        for block in blocks:
            if len(block) > self._max_record_bytes:
                raise StreamTooLarge
            if block.startswith(b"data: ") and b"\n" not in block:
                records.append(_record(("", block[6:])))
            elif record := _parsed(block):
                records.append(record)
        return records


def _parsed(block: bytes) -> Record | None:
    """The record of these lines, or None when there is no data in it: a comment, a lone `retry`."""
    event = b""
    data = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    if not data:
        return None
    return Record(event.decode("utf-8", "replace"), b"\n".join(data))
