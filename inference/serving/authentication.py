"""
The customer key of an inference request, without a database call for each.

What is cached is only who the key belongs to. Whether it is still alive, and whether the value that was
presented still is its value, is asked again in the transaction that admits the request: a revoked key and a
rotated-away value admit nothing, however fresh their entry here is.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from gateway_site.api.errors import Unauthenticated
from gateway_site.api.headers import RawHeaders
from gateway_site.api.rest_rate_limits import limits
from gateway_site.database.off_loop import off_loop
from gateway_site.database.single_flight_cache import SingleFlightCache
from organization.authentication import CUSTOMER_KEY_HEADER, customer_key_from
from organization.models import ProjectKey

MAX_AGE_SECONDS = 2.0
CREDENTIAL_HEADERS = (b"authorization", CUSTOMER_KEY_HEADER.lower().encode())

# Entries are found by a digest of the whole credential, under a key of this process: no API key stays here.
_pepper = os.urandom(32)
# Only keys that exist are kept, so nobody can fill this but us.
_known_keys: SingleFlightCache[bytes, ProjectKey] = SingleFlightCache(MAX_AGE_SECONDS)


async def customer_key(scope: Any) -> ProjectKey:
    """The active project key that this request carries, with its project and organization; or an ApiError."""
    return await _known_keys.get(_digest_of(scope["headers"]), partial(_load, scope))


def forget() -> None:
    """Empty the cache of keys, so that each is read from the database again."""
    _known_keys.clear()


def _find(scope: Any) -> ProjectKey:
    try:
        return customer_key_from(scope["headers"])
    except Unauthenticated:
        limits.count_failed_login(ASGIRequest(scope, BytesIO()))
        raise


_load = off_loop(_find)


def _digest_of(headers: RawHeaders) -> bytes:
    sent = [name + b"\0" + value for name, value in headers if name in CREDENTIAL_HEADERS]
    # BLAKE2b, because OpenSSL's HMAC gives up the interpreter's lock and another thread keeps it for a while.
    return hashlib.blake2b(b"\n".join(sent), key=_pepper, digest_size=32).digest()
