"""
Server-sent events, decoded from bytes as they arrive. Pure: no network, no clock.

Lines end at CR, LF or CRLF and at nothing else. `str.splitlines` also cuts at U+2028, which JSON allows
inside a string, so bytes are split here and never text. What comes from a backend is untrusted: one
event and the whole stream are bounded.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

MAX_EVENT_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 256 * 1024 * 1024

_PLAIN_EVENT = re.compile(rb"data: ([^\n]*)\n\n")
_AROUND_A_LINE = len(b"data: \n\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event of a stream: its type, empty where none is named, and its data."""

    event: str
    data: bytes


# What `ServerSentEvent(…)` does, without the function in between that makes it half as quick.
_event = partial(tuple.__new__, ServerSentEvent)


class StreamTooLarge(Exception):
    """An event or the stream as a whole went over its bound."""


class SseDecoder:
    """Decodes chunks that are cut anywhere into the events that each chunk completes."""

    def __init__(
        self, *, max_event_bytes: int = MAX_EVENT_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES
    ) -> None:
        self._max_event_bytes = max_event_bytes
        self._bytes_left = max_stream_bytes
        # What has come of an event that is not complete yet.
        self.pending = bytearray()
        self._is_after_cr = False
        self._is_at_start = True

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take the next chunk and return the events that it completes."""
        if not chunk:
            return []
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise StreamTooLarge
        if not self.pending and not self._is_after_cr and (lines := self._plain_lines(chunk)):
            self._is_at_start = False
            return [_event(("", line)) for line in lines]
        if self._is_after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        if self._is_at_start:
            chunk = self._without_mark(chunk)
        # Joined only when the chunk completes an event: a line that drips in byte by byte would
        # otherwise be copied once for every byte.
        if b"\n\n" not in (bytes(self.pending[-1:]) + chunk if self.pending else chunk):
            self._keep(chunk)
            return []
        *blocks, incomplete = (bytes(self.pending) + chunk if self.pending else chunk).split(b"\n\n")
        self.pending.clear()
        self._keep(incomplete)
        return self._events(blocks)

    def _plain_lines(self, chunk: bytes) -> list[bytes]:
        """The data of what nearly every chunk is: whole events of one line each. Worth a short way."""
        if len(chunk) > self._max_event_bytes or b"\r" in chunk:
            return []
        lines: list[bytes] = _PLAIN_EVENT.findall(chunk)
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
        if len(self.pending) > self._max_event_bytes:
            raise StreamTooLarge

    def _events(self, blocks: list[bytes]) -> list[ServerSentEvent]:
        events = []
        for block in blocks:
            if len(block) > self._max_event_bytes:
                raise StreamTooLarge
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(_event(("", block[6:])))
            elif event := _parsed(block):
                events.append(event)
        return events


def _parsed(block: bytes) -> ServerSentEvent | None:
    """The event of these lines, or None when there is no data in it: a comment, a lone `retry`."""
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
    return ServerSentEvent(event.decode("utf-8", "replace"), b"\n".join(data))
