"""
The contract of a dialect: how a route reads its requests, and how it writes the events of an answer.

To add a dialect: a package here that exports one object of `Dialect`, and its row in `registry.DIALECTS`.
Routing, the consumer of generation requests and the OpenAPI document all read that table.
"""

from __future__ import annotations

import uuid
from typing import Protocol, TypeVar

from msgspec import Struct

from gateway_site.api.errors import ApiError
from inference.dialects.documentation import RouteDocumentation
from inference.events import Event
from inference.prompt import Prompt


class RequestContext(Struct, frozen=True, kw_only=True):
    """What a dialect may know of a request beside its body."""

    request_id: uuid.UUID
    organization_id: uuid.UUID
    # Whether http(s) addresses may go out, for deployments whose backends may fetch them.
    remote_images: bool = False


class ParsedRequest(Struct, frozen=True):
    """A request as the consumer needs it. A dialect adds what its writer has to know."""

    prompt: Prompt
    policy_ids: tuple[str, ...]
    stream: bool


class Writer(Protocol):
    """
    Writes the answer to one request: one JSON object with `add` and `result`, or a stream of server-sent
    events with `write`, `end` and `fail`. A request needs one of the two.

    Each event passes through here, so a writer computes and never waits.
    """

    def add(self, event: Event, /) -> None:
        """Take an event into the JSON object."""

    def result(self) -> bytes:
        """Encode the JSON object that the events add up to."""

    def write(self, event: Event, /) -> bytes:
        """Encode an event as records, each with its blank line; none for what waits or is not shown."""

    def end(self, cost_usd: str | None = None, /) -> bytes:
        """
        Encode the last records of a stream, after its last event.

        With `cost_usd`, which a client asked for, as `cost` beside the usage where a record has that.
        """

    def fail(self, error: ApiError, /) -> bytes:
        """Encode the last records of a stream that was under way when `error` came."""


Parsed = TypeVar("Parsed", bound=ParsedRequest)


class Dialect(Protocol[Parsed]):
    """One generation endpoint: its route, how a request is read and how an answer is written."""

    path: str
    documentation: RouteDocumentation

    def parse(self, body: bytes, context: RequestContext, /) -> Parsed:
        """
        Read a request's body, or raise InvalidRequest naming the field at fault.

        Pure and without I/O: the body of a large request is read in a thread.
        """

    def writer(self, request: Parsed, context: RequestContext, /) -> Writer:
        """Make the writer of the answer to this request."""
