"""
The customer key of an inference request, without a database call for each.

What is cached is only who the key belongs to. Whether it is still alive, and whether the value that was
presented still is its value, is asked again in the transaction that admits the request: a revoked key and a
rotated-away value admit nothing, however fresh their entry here is.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from gateway_site.api.errors import Unauthenticated
from gateway_site.api.headers import RawHeaders
from gateway_site.api.rate_limits import limits
from gateway_site.database.off_loop import off_loop
from organization.authentication import CUSTOMER_KEY_HEADER, customer_key_from
from organization.models import ProjectKey

MAX_AGE_SECONDS = 2.0
MAX_ENTRIES = 10_000
CREDENTIAL_HEADERS = (b"authorization", CUSTOMER_KEY_HEADER.lower().encode())

# Entries are found by a digest of the whole credential, under a key of this process: no API key stays here.
_pepper = os.urandom(32)
_known: dict[bytes, tuple[float, ProjectKey]] = {}
_readings: dict[bytes, asyncio.Task[ProjectKey]] = {}


async def customer_key(scope: Any) -> ProjectKey:
    """The active project key that this request carries, with its project and organization; or an ApiError."""
    digest = _digest_of(scope["headers"])
    entry = _known.get(digest)
    if entry is not None and time.monotonic() - entry[0] < MAX_AGE_SECONDS:
        return entry[1]
    loop = asyncio.get_running_loop()
    reading = _readings.get(digest)
    if reading is None or reading.done() or reading.get_loop() is not loop:
        reading = _readings[digest] = loop.create_task(_refresh(digest, scope))
    # Shielded: a client that leaves must not end the reading for the others who wait for it.
    return await asyncio.shield(reading)


def forget() -> None:
    """Ask the database again, for every key."""
    _known.clear()
    _readings.clear()


async def _refresh(digest: bytes, scope: Any) -> ProjectKey:
    asked_at = time.monotonic()
    try:
        key: ProjectKey = await _read(scope)
    finally:
        _readings.pop(digest, None)
    # Only keys that exist are kept, so nobody can fill this but us; the bound is for very many customers.
    if len(_known) >= MAX_ENTRIES:
        _known.clear()
    _known[digest] = (asked_at, key)
    return key


def _find(scope: Any) -> ProjectKey:
    try:
        return customer_key_from(scope["headers"])
    except Unauthenticated:
        limits.count_failed_login(ASGIRequest(scope, BytesIO()))
        raise


_read = off_loop(_find)


def _digest_of(headers: RawHeaders) -> bytes:
    sent = [name + b"\0" + value for name, value in headers if name in CREDENTIAL_HEADERS]
    # BLAKE2b, because OpenSSL's HMAC gives up the interpreter's lock and another thread keeps it for a while.
    return hashlib.blake2b(b"\n".join(sent), key=_pepper, digest_size=32).digest()
