"""How often REST routes may be called. Inference is limited by the ledger, exactly."""

from __future__ import annotations

from typing import Any

from django.conf import settings
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
