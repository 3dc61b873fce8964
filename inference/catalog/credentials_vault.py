"""Credentials of backends at rest: encrypted by the first of ENCRYPTION_KEYS, opened by any of them."""

from __future__ import annotations

from gateway_site import sealing
from gateway_site.sealing import CannotDecrypt, InvalidEncryptionKeys


class CredentialUnreadable(Exception):
    """A stored credential that the configured ENCRYPTION_KEYS do not decrypt."""


def seal(credential: str) -> bytes:
    try:
        return sealing.encrypt(credential.encode())
    except InvalidEncryptionKeys:
        raise _misconfigured() from None


def unseal(ciphertext: bytes | memoryview) -> str:
    try:
        return sealing.decrypt(bytes(ciphertext)).decode()
    except CannotDecrypt:
        raise CredentialUnreadable("ENCRYPTION_KEYS do not open its credential") from None
    except InvalidEncryptionKeys:
        raise _misconfigured() from None


def _misconfigured() -> CredentialUnreadable:
    return CredentialUnreadable("ENCRYPTION_KEYS must be Fernet keys, separated by commas")
