"""How large the body of a request may be, by its path."""

from __future__ import annotations

from django.conf import settings

CONSOLE = "/admin/"
# Two or three short fields each, and a log-in may come from anyone.
SMALL_FORMS = ("/admin/login/", "/admin/logout/", "/admin/password_change/", "/admin/playground/")
SMALL_FORM_BYTES = 16 * 1024
# The console takes no files; its longest fields are a policy's rule and a backend's options.
CONSOLE_FORM_BYTES = 1024 * 1024


def body_limit_bytes(path: str) -> int:
    """The most that is read of a body. `IncomingBody` counts it, before any is parsed."""
    most: int = settings.GATEWAY_MAX_BODY_BYTES
    if not path.startswith(CONSOLE):
        return most
    return min(most, SMALL_FORM_BYTES if path.startswith(SMALL_FORMS) else CONSOLE_FORM_BYTES)
