"""One exchange with an HTTP backend: a request goes out, the records of its answer become events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

import msgspec

from gateway_site.http_client.client import Client, Dispatch, UpstreamRequest
from gateway_site.http_client.sse import ServerSentEvent
from inference.events import Event

# So many events of a whole answer are handled without giving other requests a turn.
SLICE_EVENTS = 64


class Reader(Protocol):
    """Turns the records of one answer into events. One for each request."""

    is_done: bool

    def feed(self, record: ServerSentEvent) -> list[Event]: ...

    def feed_whole(self, body: bytes) -> list[Event]:
        """The events of an answer that came as one JSON object although a stream was asked for."""
        ...

    def end(self) -> list[Event]:
        """The events that are due at the end of the answer. Raise BackendFailed if it ended too early."""
        ...


async def converse(
    client: Client, request: UpstreamRequest, reader: Reader, dispatch: Dispatch
) -> AsyncGenerator[Event, None]:
    """Send the request and yield the events of its answer. Leaving it closes or returns the connection."""
    answer = await client.post(request, dispatch)
    try:
        if answer.is_event_stream:
            while not reader.is_done and (records := await answer.next_events()) is not None:
                for record in records:
                    for event in reader.feed(record):
                        yield event
        else:
            for number, event in enumerate(reader.feed_whole(await answer.whole()), start=1):
                yield event
                if number % SLICE_EVENTS == 0:
                    await answer.turn()
        for event in reader.end():
            yield event
        await answer.drain()
    finally:
        answer.close()


def bounded_stream_bytes(tokens: int) -> int:
    """What a stream of so many tokens may weigh: 4 KiB each holds the logprobs of 20 alternatives."""
    return min(4 * 1024 * 1024 + 4096 * tokens, 256 * 1024 * 1024)


def encode_json(body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(body)
