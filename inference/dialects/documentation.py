"""What the OpenAPI document says of a route that is served ahead of Django."""

from __future__ import annotations

from typing import Annotated

from drf_spectacular.utils import OpenApiParameter
from msgspec import Meta, Struct

from gateway_site.api.openapi.document import EXTENSION, ErrorEnvelope

# What a stream says beside its usage.
StreamedCost = Annotated[
    str,
    Meta(
        description="What was charged, in USD: beside the usage of a stream whose client asked for both.",
        extra_json_schema=EXTENSION,
    ),
]


class StreamDocumentation(Struct, frozen=True, kw_only=True):
    """The records of a stream, whose `data` is a payload in JSON or the word that ends the stream."""

    payload: type[Struct]
    description: str
    last: str | None = None


class RouteDocumentation(Struct, frozen=True, kw_only=True):
    """One operation of the document: POST to a path, with the body types that validate and are sent."""

    operation_id: str
    summary: str
    description: str
    request: type[Struct]
    response: type[Struct]
    # None where an answer is never streamed.
    stream: StreamDocumentation | None = None
    # Beside those that every inference route takes.
    headers: tuple[OpenApiParameter, ...] = ()
    error_statuses: tuple[int, ...]
    error_envelope: type[ErrorEnvelope] = ErrorEnvelope
