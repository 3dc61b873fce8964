"""Who may watch the live tail: the person behind a socket's cookies, looked up anew each time."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.utils.http import is_same_domain

PERMISSION = "inference.view_activity"


def authorized_user(scope: Any) -> Any:
    """
    The member of staff whose browser opened this socket from the console's own page; None for anyone else.

    Reads the session, the user and the permissions from the database, so that whoever has been logged out,
    deactivated or moved to another role is nobody from then on.
    """
    scheme = "https" if settings.GATEWAY_HTTPS or scope.get("scheme") == "wss" else "http"
    # As the request for a page would be: the same cookies, hosts and proxies count.
    scope = {**scope, "type": "http", "method": "GET", "scheme": scheme, "root_path": ""}
    request = ASGIRequest(scope, BytesIO())
    if not _is_same_origin(request, scheme):
        return None
    sessions = import_module(settings.SESSION_ENGINE)
    request.session = sessions.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    request.user = person = get_user(request)
    return person if admin.site.has_permission(request) and person.has_perm(PERMISSION) else None


def _is_same_origin(request: ASGIRequest, scheme: str) -> bool:
    # Browsers send cookies with a socket that any site's page opens, and no token can be asked for: the
    # origin is all there is. Channels' own check by ALLOWED_HOSTS would let other ports of the host pass.
    origin = request.headers.get("Origin", "")
    try:
        return origin == f"{scheme}://{request.get_host()}" or _is_trusted(origin)
    except DisallowedHost:
        return False


def _is_trusted(origin: str) -> bool:
    """Whether CSRF_TRUSTED_ORIGINS names it; `https://*.example.com` names every host below that."""
    given = urlsplit(origin)
    return any(
        given.scheme == trusted.scheme and is_same_domain(given.netloc, trusted.netloc.lstrip("*"))
        for trusted in map(urlsplit, settings.CSRF_TRUSTED_ORIGINS)
    )
