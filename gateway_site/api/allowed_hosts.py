"""Which hosts a request may name: Django's own rule, asked before any route so that it holds for all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.http.request import split_domain_port, validate_host

# A name has at most 253 characters; then there is a port.
MAX_HOST_BYTES = 260
# What Django allows while ALLOWED_HOSTS is empty and DEBUG is on.
DEBUG_HOSTS = [".localhost", "127.0.0.1", "[::1]"]


def is_host_allowed(scope: Any) -> bool:
    """Whether the request has one Host header, with a name that ALLOWED_HOSTS lists."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    if len(found) == 1:
        return len(found[0]) <= MAX_HOST_BYTES and _is_allowed(found[0])
    if found or scope["http_version"] != "1.0":
        return False
    # HTTP/1.0 has no such header. Django takes the address that the client has connected to.
    return _is_allowed(str((scope.get("server") or ("unknown",))[0]).encode())


@lru_cache(maxsize=256)
def _is_allowed(host: bytes) -> bool:
    allowed = settings.ALLOWED_HOSTS or (DEBUG_HOSTS if settings.DEBUG else [])
    domain, _ = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, allowed)


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("ALLOWED_HOSTS", "DEBUG"):
        _is_allowed.cache_clear()


setting_changed.connect(_forget)
