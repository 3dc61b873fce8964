"""What the OpenAPI document says of a route that is served ahead of Django."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from msgspec import Struct

from gateway_site.api.openapi.document import ErrorEnvelope


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
