"""
Thoughts that a client keeps for us: `encrypted_content`, which it sends back and cannot read or change.

Nothing is stored here, so what a model thought can only go on if the client brings it along. Sealed for one
organization: another's is as unreadable as a forgery.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import uuid

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

VERSION = b"\x01"
NONCE_BYTES = 12


def seal(thoughts: str, organization_id: uuid.UUID) -> str:
    """By the first of ENCRYPTION_KEYS."""
    nonce = os.urandom(NONCE_BYTES)
    sealed = _cipher(settings.ENCRYPTION_KEYS[0]).encrypt(nonce, thoughts.encode(), organization_id.bytes)
    return base64.urlsafe_b64encode(VERSION + nonce + sealed).decode()


def unseal(sealed: str, organization_id: uuid.UUID) -> str:
    """The thoughts, by any of ENCRYPTION_KEYS; or ValueError."""
    try:
        token = base64.urlsafe_b64decode(sealed.encode("ascii"))
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("not sealed here") from None
    nonce, ciphertext = token[1 : 1 + NONCE_BYTES], token[1 + NONCE_BYTES :]
    if token[:1] == VERSION and len(nonce) == NONCE_BYTES:
        for key in settings.ENCRYPTION_KEYS:
            try:
                return _cipher(key).decrypt(nonce, ciphertext, organization_id.bytes).decode()
            except InvalidTag:
                continue
    raise ValueError("not sealed here")


def _cipher(key: str) -> AESGCM:
    # A key of its own for this purpose: credentials of backends are under the same ENCRYPTION_KEYS.
    return AESGCM(hmac.digest(key.encode(), b"reasoning of responses", hashlib.sha256))
