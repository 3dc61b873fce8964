"""
The format and the hashing of API keys (pure).

    gwk_ <43 random base62 characters> <6 of checksum>      a project's customer key
    gwa_ <43 random base62 characters> <6 of checksum>      an organization's Admin API key

43 base62 characters hold 256 bits. The checksum lets a scanner recognise a leaked key, and lets us
refuse anything else without asking the database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from collections.abc import Sequence
from typing import Literal

KeyKind = Literal["customer", "admin"]

PREFIXES: dict[KeyKind, str] = {"customer": "gwk_", "admin": "gwa_"}
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 43
CHECKSUM_LENGTH = 6
SHAPE = re.compile(r"gw[ka]_[0-9A-Za-z]{49}", re.ASCII)


def new_value(kind: KeyKind) -> str:
    """A key that nobody has seen."""
    body = PREFIXES[kind] + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    return body + _checksum(body)


def kind_of(value: str) -> KeyKind | None:
    """Which kind of key this could be; None if we never issued anything like it."""
    if not SHAPE.fullmatch(value):
        return None
    body, checksum = value[:-CHECKSUM_LENGTH], value[-CHECKSUM_LENGTH:]
    if checksum != _checksum(body):
        return None
    return "customer" if value.startswith(PREFIXES["customer"]) else "admin"


def digest_of(value: str, pepper: str) -> str:
    # One HMAC, not a password hasher: 256 random bits cannot be guessed from their digest, and a slow
    # hash here would be paid on every request. The pepper is not in the database, so a copy of the
    # database alone cannot even confirm a leaked key.
    return hmac.new(pepper.encode(), value.encode(), hashlib.sha256).hexdigest()


def digests_of(value: str, peppers: Sequence[str]) -> tuple[str, ...]:
    """Everything that may be stored of this value: a key keeps its older pepper until it is used again."""
    return tuple(digest_of(value, pepper) for pepper in peppers)


def redacted(value: str) -> str:
    """The start of the key: enough to tell two apart, nothing to guess the rest from."""
    return value[:8] + "..."


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        number, remainder = divmod(number, len(ALPHABET))
        digits = ALPHABET[remainder] + digits
    return digits
