"""
Errors of requests that are refused for their HTTP, before they reach a route.

* ApiError
  x InvalidRequest
    + MalformedRequest          400
    + DisallowedHost            400
  x HeadTimeout                 408
  x TargetTooLong               414
  x HeadTooLarge                431
  x Unavailable
    + TooManyConnections        503
"""

from __future__ import annotations

from gateway_site.api.errors import ApiError, InvalidRequest, Unavailable


class MalformedRequest(InvalidRequest):
    """The bytes are not HTTP/1.1. Where the next request begins cannot be known: nothing more is read."""

    code = "malformed_request"
    message = "The request is not well-formed HTTP/1.1."


class DisallowedHost(InvalidRequest):
    message = (
        "The Host header must be there once and name a host that this gateway serves. An operator lists those"
        " hosts in ALLOWED_HOSTS."
    )


class HeadTimeout(ApiError):
    status = 408
    type = "timeout_error"
    code = "request_timeout"

    def __init__(self, limit_seconds: float) -> None:
        super().__init__(f"The request line and headers did not arrive within {limit_seconds} seconds.")


class TargetTooLong(ApiError):
    status = 414
    type = "request_too_large"
    code = "uri_too_long"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The URL is too long: request line and headers may have {limit_bytes} bytes.")


class HeadTooLarge(ApiError):
    status = 431
    type = "request_too_large"
    code = "request_header_fields_too_large"


class TooManyConnections(Unavailable):
    """Every connection that this process may have is at work on a request."""

    code = "too_many_connections"
    message = "The gateway has as many connections as it can serve. Try again."
