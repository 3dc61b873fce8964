"""
Reasoning that a client keeps for us: `encrypted_content`, which it sends back and cannot read or change.

Nothing is stored here, so what a model thought can only go on if the client brings it along. Sealed for one
organization: another's is as unreadable as a forgery.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from gateway_site import sealing
from gateway_site.sealing import CannotDecrypt

VERSION = b"\x01"
# Its keys are of no use for the credentials of backends, which are under the same ENCRYPTION_KEYS.
PURPOSE = b"reasoning of responses"


def seal(thoughts: str, organization_id: uuid.UUID) -> str:
    """Seal reasoning for one organization with the first of ENCRYPTION_KEYS."""
    key = sealing.purpose_keys(PURPOSE)[0]
    sealed = sealing.encrypt_bound(key, thoughts.encode(), bound_to=organization_id.bytes)
    return base64.urlsafe_b64encode(VERSION + sealed).decode()


def unseal(sealed: str, organization_id: uuid.UUID) -> str:
    """Open sealed reasoning with any of ENCRYPTION_KEYS, or raise ValueError."""
    try:
        token = base64.urlsafe_b64decode(sealed.encode("ascii"))
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("not sealed here") from None
    if token[:1] == VERSION:
        for key in sealing.purpose_keys(PURPOSE):
            try:
                return sealing.decrypt_bound(key, token[1:], bound_to=organization_id.bytes).decode()
            except CannotDecrypt:
                continue
    raise ValueError("not sealed here")
