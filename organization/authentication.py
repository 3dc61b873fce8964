"""Authentication by API key: two kinds of key, three ways to send one, one answer to anything else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication

from gateway_site.api.errors import Unauthenticated, WrongKeyKind
from gateway_site.api.headers import RawHeaders, values_of
from gateway_site.api.rest_rate_limits import limits
from organization import keys
from organization.models import AdminKey, ApiKey, KeyStatus, ProjectKey

# Unspecified: customer-header-key. The older Messages SDKs send the bare key under this name.
CUSTOMER_KEY_HEADER = "X-Api-Key"
# How stale `last_used_at` may be: a write for each request would cost more than it tells.
LAST_USED_STEP = timedelta(minutes=1)

AnyKey = TypeVar("AnyKey", bound=ApiKey)


def admin_key_from(headers: RawHeaders) -> AdminKey:
    """The active admin key that these headers carry."""
    value, is_bearer = _credential(headers)
    kind = keys.kind_of(value)
    if kind == "customer" and _find(ProjectKey, value):
        raise WrongKeyKind("A project's customer key cannot call organization routes.")
    # An admin key has one scheme; the header scheme is the customers'.
    key = _find(AdminKey, value) if kind == "admin" and is_bearer else None
    if key is None:
        raise Unauthenticated()
    return key


def customer_key_from(headers: RawHeaders) -> ProjectKey:
    """The active project key that these headers carry, by either of the customer schemes."""
    value, _ = _credential(headers)
    kind = keys.kind_of(value)
    if kind == "admin" and _find(AdminKey, value):
        raise WrongKeyKind("An Admin API key cannot call inference or model routes.")
    key = _find(ProjectKey, value) if kind == "customer" else None
    if key is None:
        raise Unauthenticated()
    return key


class AdminKeyAuthentication(BaseAuthentication):
    """For REST views of administrators: the request's `auth` is the admin key. There is no user."""

    def authenticate(self, request: Any) -> tuple[None, AdminKey]:
        try:
            key = admin_key_from(request.scope["headers"])
        except Unauthenticated:
            limits.count_failed_login(request)
            raise
        limits.limit_admin_key(request, str(key.pk))
        return None, key

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


class CustomerKeyAuthentication(BaseAuthentication):
    """For REST views of customers: the request's `auth` is the project key, by either of its schemes."""

    def authenticate(self, request: Any) -> tuple[None, ProjectKey]:
        try:
            key = customer_key_from(request.scope["headers"])
        except Unauthenticated:
            limits.count_failed_login(request)
            raise
        limits.limit_customer_key(request, str(key.pk))
        return None, key

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


def _credential(headers: RawHeaders) -> tuple[str, bool]:
    """The one credential that was sent, and whether it came as a bearer token."""
    headers = list(headers)
    bearer, bare = values_of(headers, "Authorization"), values_of(headers, CUSTOMER_KEY_HEADER)
    if len(bearer) + len(bare) != 1:
        raise Unauthenticated()
    if bare:
        return bare[0], False
    scheme, _, value = bearer[0].partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated()
    return value.strip(" "), True


def _find(model: type[AnyKey], value: str) -> AnyKey | None:
    digests = keys.digests_of(value, settings.GATEWAY_KEY_PEPPERS)
    key = _read(model, digests)
    if key is not None and key.digest != digests[0]:
        key = _move_to_newest_pepper(key, digests)
    now = timezone.now()
    if key is None or key.status_at(now) is not KeyStatus.ACTIVE:
        return None
    key.presented_digests = digests
    # The condition is in the statement, so that a thousand requests in a minute write once.
    unused = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_STEP)
    model._default_manager.filter(unused, pk=key.pk).update(last_used_at=now)
    return key


def _read(model: type[AnyKey], digests: tuple[str, ...]) -> AnyKey | None:
    owner = "project__organization" if model is ProjectKey else "organization"
    return model._default_manager.select_related(owner).filter(digest__in=digests).first()


def _move_to_newest_pepper(key: AnyKey, digests: tuple[str, ...]) -> AnyKey | None:
    """Store the digest of the first pepper, so that an older one can be dropped once all keys are moved."""
    # Only over the digest that was read: a rotation since then has ended this value for good.
    unrotated = type(key)._default_manager.filter(pk=key.pk, digest=key.digest)
    if unrotated.update(digest=digests[0]):
        key.digest = digests[0]
        return key
    return _read(type(key), digests)
