"""Rate limits of REST routes and of log-ins. Inference is limited by the ledger, exactly."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django_ratelimit.core import get_usage

from gateway_site.api.errors import RateLimited
from gateway_site.api.rest_rate_limits.redis_cache import LimitCache

# One customer of a provider has more addresses than could be counted, all in one network of this size.
IPV6_NETWORK_BITS = 64
MAX_ADDRESS_LENGTH = 64


def limit_admin_key(request: HttpRequest, key_id: str) -> None:
    """Count one request of an admin key; refuse it if the minute is used up."""
    _count(request, "admin-key", key_id, settings.GATEWAY_ADMIN_REQUESTS_PER_MINUTE)


def limit_customer_key(request: HttpRequest, key_id: str) -> None:
    """Count one request of a customer key, on routes that generate nothing and so do not meet the ledger."""
    if settings.GATEWAY_REQUESTS_PER_MINUTE:
        _count(request, "customer-key", key_id, settings.GATEWAY_REQUESTS_PER_MINUTE)


def count_failed_login(request: HttpRequest) -> None:
    """Count one bad credential from this network; refuse to say more once there were many."""
    window = Window("failed-login", settings.GATEWAY_FAILED_LOGINS_PER_MINUTE, 60)
    if seconds := window.count(network_of(client_address(request))):
        raise RateLimited(f"More than {window.limit} requests in a minute.", retry_after_seconds=seconds)


def client_address(request: HttpRequest) -> str:
    """The client's address, as our own proxies saw it. What a client writes further left is ignored."""
    hops = [*request.headers.get("X-Forwarded-For", "").split(","), request.META.get("REMOTE_ADDR", "")]
    hops = [hop.strip() for hop in hops if hop.strip()]
    position = len(hops) - 1 - settings.GATEWAY_TRUSTED_PROXIES
    return hops[max(position, 0)] if hops else "unknown"


def network_of(address: str) -> str:
    """Whom an address is counted as: itself, or its IPv6 network. What is no address stands for itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:MAX_ADDRESS_LENGTH]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), IPV6_NETWORK_BITS), strict=False))


def _count(request: HttpRequest, group: str, key: str, per_minute: int) -> None:
    usage: dict[str, Any] | None = get_usage(
        request, group=group, key=lambda _group, _request: key, rate=f"{per_minute}/m", increment=True
    )
    if usage and usage["should_limit"]:
        raise RateLimited(
            f"More than {per_minute} requests in a minute.", retry_after_seconds=usage["time_left"]
        )


@dataclass(frozen=True, slots=True)
class Window:
    """
    A fixed window of rate limiting: so many of something in so many seconds, counted in Redis.

    Without Redis, or while it does not answer, each process counts for itself: each group in a store of its
    own, where whoever has to wait is never pushed out by others.
    """

    group: str
    limit: int
    seconds: int

    def count(self, key: str) -> int:
        """Count one attempt before it is made. Returns the seconds to wait if that is too many, else 0."""
        name, left = self._name(key)
        counted = _limits().count(self.group, name, limit=self.limit, seconds=self.seconds)
        return left if counted > self.limit else 0

    def take_back(self, key: str) -> None:
        """Take back one that was counted and turned out well."""
        name, _ = self._name(key)
        _limits().take_back(self.group, name)

    def _name(self, key: str) -> tuple[str, int]:
        """The name of the window that is open now, and for how many seconds it still is."""
        now = int(time.time())
        # As a digest: what people type has any length and any character.
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        return f"window:{self.group}:{now // self.seconds}:{digest}", self.seconds - now % self.seconds


def _limits() -> LimitCache:
    cache = caches["default"]
    if not isinstance(cache, LimitCache):
        raise ImproperlyConfigured("CACHES['default'] must be a LimitCache.")
    return cache
