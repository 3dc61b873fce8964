"""
How secrets are encrypted at rest and in the hands of clients: everything here is under ENCRYPTION_KEYS.

The first of the keys encrypts and any of them decrypts: a new one is put in front of those that are in use.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

NONCE_BYTES = 12


class InvalidEncryptionKeys(Exception):
    """ENCRYPTION_KEYS holds something else than Fernet keys."""


class CannotDecrypt(Exception):
    """The ciphertext was made with another key or for another context, or was changed."""


def encrypt(secret: bytes) -> bytes:
    """Encrypt with the first of ENCRYPTION_KEYS, as a Fernet token."""
    return _fernet().encrypt(secret)


def decrypt(token: bytes) -> bytes:
    """Decrypt a Fernet token with whichever of ENCRYPTION_KEYS opens it, or raise CannotDecrypt."""
    try:
        return _fernet().decrypt(token)
    except InvalidToken:
        raise CannotDecrypt() from None


def new_key() -> bytes:
    """Make a random key for `encrypt_bound`, to be kept encrypted."""
    return AESGCM.generate_key(bit_length=256)


def purpose_keys(purpose: bytes) -> list[bytes]:
    """Derive a key from each of ENCRYPTION_KEYS, in their order, that is of no use for another purpose."""
    return [hmac.digest(key.encode(), purpose, hashlib.sha256) for key in settings.ENCRYPTION_KEYS]


def encrypt_bound(key: bytes, secret: bytes, *, bound_to: bytes) -> bytes:
    """Encrypt by AES-GCM, so that it decrypts only together with `bound_to`. The nonce comes first."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, secret, bound_to)


def decrypt_bound(key: bytes, ciphertext: bytes, *, bound_to: bytes) -> bytes:
    """Decrypt what `encrypt_bound` made with the same key and context, or raise CannotDecrypt."""
    nonce, encrypted = ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:]
    if len(nonce) < NONCE_BYTES:
        raise CannotDecrypt()
    try:
        return AESGCM(key).decrypt(nonce, encrypted, bound_to)
    except InvalidTag:
        raise CannotDecrypt() from None


def _fernet() -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
    except ValueError:
        raise InvalidEncryptionKeys() from None
