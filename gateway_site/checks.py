"""System checks: what `manage.py check` says about a configuration that will hurt later."""

from __future__ import annotations

from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register


@register
def encryption_keys_are_keys(app_configs: Any, **options: Any) -> list[CheckMessage]:
    for key in settings.ENCRYPTION_KEYS:
        try:
            Fernet(key)
        except ValueError:
            hint = "A Fernet key is 32 random bytes in URL-safe base64; .env.example shows how to make one."
            return [
                Error("ENCRYPTION_KEYS holds something else than Fernet keys.", hint=hint, id="gateway.E001")
            ]
    return []


@register
def peppers_are_long(app_configs: Any, **options: Any) -> list[CheckMessage]:
    if all(len(pepper) >= 32 for pepper in settings.GATEWAY_KEY_PEPPERS):
        return []
    return [Error("GATEWAY_KEY_PEPPERS needs at least 32 characters each.", id="gateway.E002")]


@register
def production_does_not_debug(app_configs: Any, **options: Any) -> list[CheckMessage]:
    if settings.IS_EMBEDDED or not settings.DEBUG:
        return []
    return [Warning("DEBUG shows tracebacks to clients.", hint="Unset DEBUG.", id="gateway.W001")]


@register
def limits_are_shared(app_configs: Any, **options: Any) -> list[CheckMessage]:
    if settings.IS_EMBEDDED or settings.REDIS_URL:
        return []
    hint = "Set REDIS_URL, so that limits of organization routes count across processes."
    return [Warning("Each process counts its own requests.", hint=hint, id="gateway.W002")]
