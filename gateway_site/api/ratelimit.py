"""How often REST routes may be called. Inference is limited by the ledger, exactly."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django_ratelimit.core import get_usage

from gateway_site.api.errors import RateLimited


def limit_admin_key(request: HttpRequest, key_id: str) -> None:
    """Count one request of an admin key; refuse it if the minute is used up."""
    _count(request, "admin-key", key_id, settings.GATEWAY_ADMIN_REQUESTS_PER_MINUTE)


def limit_customer_key(request: HttpRequest, key_id: str) -> None:
    """The same for a customer key, on routes that generate nothing and so do not meet the ledger."""
    if settings.GATEWAY_REQUESTS_PER_MINUTE:
        _count(request, "customer-key", key_id, settings.GATEWAY_REQUESTS_PER_MINUTE)


def count_failed_login(request: HttpRequest) -> None:
    """Count one bad credential from this address; refuse to say more once there were many."""
    _count(request, "failed-login", client_address(request), settings.GATEWAY_FAILED_LOGINS_PER_MINUTE)


def client_address(request: HttpRequest) -> str:
    """The address in front of our own proxies. What a client writes further left is not believed."""
    hops = [*request.headers.get("X-Forwarded-For", "").split(","), request.META.get("REMOTE_ADDR", "")]
    hops = [hop.strip() for hop in hops if hop.strip()]
    position = len(hops) - 1 - settings.GATEWAY_TRUSTED_PROXIES
    return hops[max(position, 0)] if hops else "unknown"


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
    """So many of something in so many seconds, counted in the cache: without Redis, by each process."""

    group: str
    limit: int
    seconds: int

    def count(self, key: str) -> int:
        """Count one before it is tried. The seconds to wait if that is too many, else 0."""
        name, now = self._name(key)
        cache.add(name, 0, timeout=self.seconds)
        try:
            counted = cache.incr(name)
        except ValueError:  # it expired between the two
            cache.set(name, 1, timeout=self.seconds)
            counted = 1
        return self.seconds - now % self.seconds if counted > self.limit else 0

    def forget_one(self, key: str) -> None:
        """Take back one that was counted and turned out well."""
        name, _ = self._name(key)
        with contextlib.suppress(ValueError):
            cache.decr(name)

    def _name(self, key: str) -> tuple[str, int]:
        now = int(time.time())
        # As a digest: what people type has any length and any character.
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        return f"window:{self.group}:{now // self.seconds}:{digest}", now
