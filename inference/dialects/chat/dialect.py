"""
Writing chat completions: the same events as one JSON object or as a stream of records.

    async with aclosing(pipeline.generate(...)) as events:
        body = await fold(events, info)               # or
        async for record in records(events, info): …

Both end when the events end, so whatever the pipeline does last (settle) is done before the last byte.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from gateway_site.api import envelope
from gateway_site.api.errors import ApiError
from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.fold import ChatFold
from inference.dialects.chat.stream import ChatStream
from inference.dialects.sse import escape_line_breaks
from inference.events import Event

PATH = "/v1/chat/completions"


async def fold(events: AsyncIterator[Event], info: CompletionInfo) -> bytes:
    """The body of a chat completion."""
    completion = ChatFold(info)
    async for event in events:
        completion.add(event)
    return msgspec.json.encode(completion.result())


async def records(events: AsyncIterator[Event], info: CompletionInfo) -> AsyncGenerator[bytes, None]:
    """The records of a stream, each with its blank line, to the last."""
    stream = ChatStream(info)
    async for event in events:
        if record := stream.write(event):
            yield record
    yield stream.end()


def error_record(error: ApiError) -> bytes:
    """
    How a stream ends that was under way when `error` came.

    Under `error` and without an `event:` line, or the Python SDK would take it for a chunk. No `[DONE]`
    follows: a client that skips what has no choices would take the part that it has for a whole answer.
    """
    return b"data: " + escape_line_breaks(msgspec.json.encode(envelope.body_of(error, path=PATH))) + b"\n\n"
