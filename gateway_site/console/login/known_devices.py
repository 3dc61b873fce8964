"""
Browsers from which a person has logged in before.

Wrong passwords for a name are counted wherever they come from, so that many addresses guess no more than one.
That alone would let anybody keep a known name out for ever. A browser that has logged in as that person holds
a signed cookie, and its tries are counted by themselves: nobody else can use them up, and they are as few.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare, salted_hmac

from gateway_site.console.login.form import comparable

COOKIE = "known_device"
COOKIE_PATH = "/admin/login/"
LIFETIME_SECONDS = 180 * 24 * 3600
# As first released: cookies signed with it are in browsers.
SALT = "gateway_site.known_devices"


def known_device(request: HttpRequest, name: str) -> str | None:
    """The id of this browser, if the person of this name logged in from it with their present password."""
    claim = _claim(request)
    if claim is None:
        return None
    user = get_user_model().objects.filter(pk=claim["user"]).first()
    if user is None or comparable(user.get_username()) != name:
        return None
    is_current = constant_time_compare(claim["password"], _fingerprint(user))
    return str(claim["device"]) if is_current else None


def remember_device(request: HttpRequest, response: HttpResponse, user: Any) -> None:
    """Note in the browser that this person logged in from it. Ends with the person's next password."""
    claim = _claim(request)
    device = claim["device"] if claim and claim["user"] == user.pk else secrets.token_urlsafe(16)
    response.set_cookie(
        COOKIE,
        signing.dumps({"user": user.pk, "password": _fingerprint(user), "device": device}, salt=SALT),
        max_age=LIFETIME_SECONDS,
        path=COOKIE_PATH,
        secure=settings.GATEWAY_HTTPS,
        httponly=True,
        samesite="Lax",
    )


def _claim(request: HttpRequest) -> dict[str, Any] | None:
    try:
        claim: dict[str, Any] = signing.loads(
            request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=LIFETIME_SECONDS
        )
    except signing.BadSignature:
        return None
    return claim


def _fingerprint(user: Any) -> str:
    return salted_hmac(SALT, user.password, algorithm="sha256").hexdigest()[:32]
