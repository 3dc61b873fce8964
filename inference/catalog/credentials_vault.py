"""Credentials of backends at rest: encrypted by the first of ENCRYPTION_KEYS, opened by any of them."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class CredentialUnreadable(Exception):
    """The configured keys do not open it."""


def seal(credential: str) -> bytes:
    return _cipher().encrypt(credential.encode())


def unseal(ciphertext: bytes | memoryview) -> str:
    try:
        return _cipher().decrypt(bytes(ciphertext)).decode()
    except InvalidToken:
        raise CredentialUnreadable("ENCRYPTION_KEYS do not open its credential") from None


def _cipher() -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
    except ValueError:
        raise CredentialUnreadable("ENCRYPTION_KEYS must be Fernet keys, separated by commas") from None
