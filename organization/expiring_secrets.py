"""
Secrets that must be readable for a day and never after.

Each UTC day has its own random key, kept wrapped by ENCRYPTION_KEYS. Erasing the day's key makes its
ciphertexts unreadable wherever copies of the database have gone.
"""

from __future__ import annotations

import os
from datetime import date, timedelta

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils import timezone

from gateway_site.api.errors import Unavailable
from organization.models import IdempotencyRecord, SecretDay

NONCE_LENGTH = 12
READABLE_FOR = timedelta(hours=24)
# A secret of the day's last second is readable for a day more, and clocks of two machines differ.
KEY_KEPT_FOR = timedelta(hours=48)


def seal(secret: str, *, bound_to: str) -> tuple[date, bytes]:
    """The day and ciphertext of `secret`, which will open only together with `bound_to`."""
    day = timezone.now().date()
    nonce = os.urandom(NONCE_LENGTH)
    return day, nonce + AESGCM(_key_of(day)).encrypt(nonce, secret.encode(), bound_to.encode())


def unseal(day: date, ciphertext: bytes | memoryview, *, bound_to: str) -> str | None:
    """The secret, or None if its day was erased."""
    row = SecretDay.objects.filter(pk=day).first()
    if row is None:
        return None
    sealed = bytes(ciphertext)
    cipher = AESGCM(_unwrap(bytes(row.wrapped_key)))
    try:
        return cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], bound_to.encode()).decode()
    except InvalidTag:
        raise Unavailable("A stored secret does not open with the configured ENCRYPTION_KEYS.") from None


def erase_old_secrets() -> int:
    """Wipe what is past its day: first the ciphertexts, then the keys. Returns how many were wiped."""
    now = timezone.now()
    wiped = (
        IdempotencyRecord.objects.filter(created_at__lte=now - READABLE_FOR)
        .exclude(secret_ciphertext=None)
        .update(secret_ciphertext=None, secret_day=None)
    )
    SecretDay.objects.filter(day__lt=(now - KEY_KEPT_FOR).date()).delete()
    return wiped


def _key_of(day: date) -> bytes:
    fresh = _wrapper().encrypt(AESGCM.generate_key(bit_length=256))
    # Whoever comes first decides the day's key; the others read it back.
    SecretDay.objects.bulk_create([SecretDay(day=day, wrapped_key=fresh)], ignore_conflicts=True)
    return _unwrap(bytes(SecretDay.objects.get(pk=day).wrapped_key))


def _unwrap(wrapped: bytes) -> bytes:
    try:
        return _wrapper().decrypt(wrapped)
    except InvalidToken:
        raise Unavailable("The configured ENCRYPTION_KEYS do not open today's secrets.") from None


def _wrapper() -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
    except ValueError:
        raise Unavailable("ENCRYPTION_KEYS must be Fernet keys, separated by commas.") from None
