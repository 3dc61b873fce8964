"""JSON from a backend, which may be anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway_site.api.errors import BackendFailed

T = TypeVar("T")


def decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    """What `decode` makes of it, or BackendFailed."""
    try:
        return decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: bytes that are not UTF-8
        if b"NaN" not in data and b"Infinity" not in data:
            raise BackendFailed from None
    # Python servers write these where a number is missing. As null they are a figure that is not there,
    # not an answer that is lost. Encoded again, so that nothing gets in which we could not send on.
    try:
        value = json.loads(data, parse_constant=lambda name: None)
        return decode(msgspec.json.encode(value))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise BackendFailed from None
