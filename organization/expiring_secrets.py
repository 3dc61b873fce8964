"""
Secrets that expire: they must be readable for a day and never after.

Each UTC day has its own random key, kept wrapped by ENCRYPTION_KEYS. Erasing the day's key makes its
ciphertexts unreadable wherever copies of the database have gone.
"""

from __future__ import annotations

from datetime import date, timedelta

from django.utils import timezone

from gateway_site import sealing
from gateway_site.api.errors import Unavailable
from gateway_site.sealing import CannotDecrypt, InvalidEncryptionKeys
from organization.models import IdempotencyRecord, SecretDay

READABLE_FOR = timedelta(hours=24)
# A secret of the day's last second is readable for a day more, and clocks of two machines differ.
KEY_KEPT_FOR = timedelta(hours=48)


def seal(secret: str, *, bound_to: str) -> tuple[date, bytes]:
    """Encrypt a secret: its day and its ciphertext, which opens only together with `bound_to`."""
    day = timezone.now().date()
    return day, sealing.encrypt_bound(_key_of(day), secret.encode(), bound_to=bound_to.encode())


def unseal(day: date, ciphertext: bytes | memoryview, *, bound_to: str) -> str | None:
    """Decrypt a secret; None if the key of its day was erased."""
    row = SecretDay.objects.filter(pk=day).first()
    if row is None:
        return None
    key = _unwrap(bytes(row.wrapped_key))
    try:
        return sealing.decrypt_bound(key, bytes(ciphertext), bound_to=bound_to.encode()).decode()
    except CannotDecrypt:
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
    try:
        fresh = sealing.encrypt(sealing.new_key())
    except InvalidEncryptionKeys:
        raise _misconfigured() from None
    # Whoever comes first decides the day's key; the others read it back.
    SecretDay.objects.bulk_create([SecretDay(day=day, wrapped_key=fresh)], ignore_conflicts=True)
    return _unwrap(bytes(SecretDay.objects.get(pk=day).wrapped_key))


def _unwrap(wrapped: bytes) -> bytes:
    try:
        return sealing.decrypt(wrapped)
    except CannotDecrypt:
        raise Unavailable("The configured ENCRYPTION_KEYS do not open today's secrets.") from None
    except InvalidEncryptionKeys:
        raise _misconfigured() from None


def _misconfigured() -> Unavailable:
    return Unavailable("ENCRYPTION_KEYS must be Fernet keys, separated by commas.")
