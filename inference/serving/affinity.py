"""
Session affinity and cache keys: hints about what a request shares with others, isolated to one project.

A session id or a cache key from a client decides where its request goes and which cached prompt it may find.
What leaves for a backend is a keyed digest of it with the project in it, so that two projects with the same
id share nothing, and no backend learns what a client's ids are.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from django.conf import settings

from gateway_site.api.errors import InvalidRequest
from inference.prompt import CacheHints
from organization.models import ProjectKey

SESSION_HEADER = "X-Service-Session-ID"
# The name that other gateways gave the same header.
SESSION_ALIAS = "X-Alt-Session-ID"
MAX_SESSION_LENGTH = 512


def session_of(values: dict[str, list[str]]) -> str | None:
    """The session id among these headers, by name; None where there is none."""
    found: dict[str, str] = {}
    for name in (SESSION_HEADER, SESSION_ALIAS):
        sent = values.get(name, [])
        if len(sent) > 1:
            raise InvalidRequest("This header was sent more than once.", param=name)
        if sent:
            if not 1 <= len(sent[0]) <= MAX_SESSION_LENGTH or not _is_printable(sent[0]):
                raise InvalidRequest(
                    f"A session id has 1 to {MAX_SESSION_LENGTH} printable ASCII characters.", param=name
                )
            found[name] = sent[0]
    if len(set(found.values())) > 1:
        raise InvalidRequest(
            f"{SESSION_HEADER} and {SESSION_ALIAS} are names for one thing; they differ.", param=SESSION_ALIAS
        )
    return next(iter(found.values()), None)


def isolate(key: ProjectKey, kind: str, value: str) -> bytes:
    """A digest of the value that only this project's requests have."""
    # Keyed BLAKE2b is a MAC as HMAC is, and does not give up the interpreter's lock, which the ledger's
    # thread would then keep for milliseconds. Parts are of fixed length or last, so no two lists read alike.
    made = hashlib.blake2b(key=_secret(settings.SECRET_KEY), person=kind.encode(), digest_size=32)
    made.update(key.project.organization_id.bytes + key.project_id.bytes + value.encode())
    return made.digest()


def isolate_hints(key: ProjectKey, sent: CacheHints, session: str | None) -> tuple[CacheHints, bytes | None]:
    """The hints as a backend may see them, and the affinity that load balancing follows."""
    affinity: bytes | None = None
    if session is not None:
        affinity = isolate(key, "session", session)
    elif sent.key is not None:
        affinity = isolate(key, "cache key", sent.key)
    upstream_key = affinity if sent.key is None else isolate(key, "cache key", sent.key)
    hints = CacheHints(
        key=None if upstream_key is None else upstream_key.hex(),
        retention=sent.retention,
        # Always: without one, a server would let projects find each other's prompts by how fast they are.
        salt=isolate(key, "salt", sent.salt or "").hex(),
    )
    return hints, affinity


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


@lru_cache(maxsize=4)
def _secret(secret_key: str) -> bytes:
    return hashlib.sha256(b"affinity:" + secret_key.encode()).digest()
