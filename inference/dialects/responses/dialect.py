"""
Responses, from the bytes of a request to the same events as one JSON object or as a stream of typed events.

    call = parse(raw, organization_id=…)
    writer = begin(call, organization_id, request_id)
    async with aclosing(pipeline.generate(...)) as events:
        body = await fold(events, writer)               # or
        async for record in records(events, writer): …

Both end when the events end, so whatever the pipeline does last (settle) is done before the last byte.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

import msgspec

from gateway_site.api import envelope
from gateway_site.api.errors import ApiError
from inference.dialects.responses import parse as responses_prompt
from inference.dialects.responses.encrypted_reasoning import seal, unseal
from inference.dialects.responses.parse import ResponseCall
from inference.dialects.responses.stream import ResponseHead, ResponseWriter
from inference.events import Event

PATH = "/v1/responses"


def parse(raw: bytes, *, organization_id: uuid.UUID, remote_images: bool) -> ResponseCall:
    """The call that a request body describes, with what was sealed for this organization opened."""
    opened = partial(unseal, organization_id=organization_id)
    return responses_prompt.parse(raw, unseal=opened, remote_images=remote_images)


def begin(call: ResponseCall, organization_id: uuid.UUID, request_id: uuid.UUID) -> ResponseWriter:
    """The writer of one answer."""
    return ResponseWriter(
        ResponseHead(
            id=f"resp_{request_id.hex}",
            created=int(time.time()),
            model=call.prompt.model,
            echo=call.echo,
            summarizes=call.summarizes,
            seal=partial(seal, organization_id=organization_id) if call.seals else None,
        )
    )


async def fold(events: AsyncIterator[Event], writer: ResponseWriter) -> bytes:
    """The body of a response."""
    async for event in events:
        writer.add(event)
    return msgspec.json.encode(writer.result())


async def records(events: AsyncIterator[Event], writer: ResponseWriter) -> AsyncGenerator[bytes, None]:
    """The records of a stream, each with its blank line, to the last."""
    async for event in events:
        if record := writer.write(event):
            yield record
    yield writer.end()


def error_record(writer: ResponseWriter, error: ApiError) -> bytes:
    """How a stream ends that was under way when `error` came."""
    return writer.fail(error, envelope.body_of(error, path=PATH)["error"])
