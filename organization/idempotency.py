"""
Creation that can be repeated: the same Idempotency-Key makes one thing.

The record is inserted first and commits together with what it made, so a crash leaves neither. The
unique index is the lock: a second request waits there for the first one's commit and then replays it,
or, if the first was rolled back, becomes the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import OperationalError, transaction
from django.db.models.functions import Now
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from gateway_site.api.errors import CreationInProgress, IdempotencyMismatch, InvalidRequest
from gateway_site.api.headers import RawHeaders, values_of
from organization import expiring_secrets
from organization.models import AdminKey, IdempotencyRecord

HEADER = "Idempotency-Key"
MIN_LENGTH, MAX_LENGTH = 8, 200
KEPT_FOR = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Created:
    """What a creation made: the answer without its secret, and the secret apart."""

    resource_id: str
    answer: dict[str, Any]
    secret: str | None = None


def key_from(headers: RawHeaders) -> str:
    """The request's Idempotency-Key, present once and well-formed."""
    given = values_of(headers, HEADER)
    if len(given) != 1:
        raise InvalidRequest(f"{HEADER} must be sent exactly once.", param=HEADER)
    key = given[0]
    if not (MIN_LENGTH <= len(key) <= MAX_LENGTH and all(" " <= character <= "~" for character in key)):
        raise InvalidRequest(
            f"{HEADER} must be {MIN_LENGTH} to {MAX_LENGTH} printable ASCII characters.", param=HEADER
        )
    return key


def create_once(
    *,
    admin_key: AdminKey,
    operation: str,
    key: str,
    body: dict[str, Any],
    create: Callable[[], Created],
    is_current: Callable[[str, str], bool],
) -> Created:
    """
    Run `create`, or return what it made the first time this key came with this body.

    A replay carries the secret for 24 hours, to the same admin key, and while `is_current` says that
    the resource (by id) can still be used with that secret.
    """
    try:
        with transaction.atomic():
            return _create_or_replay(admin_key, operation, key, _fingerprint(body), create, is_current)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise CreationInProgress() from None
        raise


def prune_idempotency() -> int:
    """Forget keys that are older than a month. Using one again then creates anew."""
    count, _ = IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT_FOR).delete()
    return count


def _create_or_replay(
    admin_key: AdminKey,
    operation: str,
    key: str,
    fingerprint: str,
    create: Callable[[], Created],
    is_current: Callable[[str, str], bool],
) -> Created:
    record, is_new = IdempotencyRecord.objects.get_or_create(
        organization_id=admin_key.organization_id,
        key=key,
        defaults={"admin_key": admin_key, "operation": operation, "fingerprint": fingerprint},
    )
    if is_new:
        return _remember(record, create())
    current = (admin_key.pk, operation, fingerprint)
    if (record.admin_key_id, record.operation, record.fingerprint) != current:
        raise IdempotencyMismatch()
    return Created(record.resource_id, json.loads(record.answer), _secret_of(record, is_current))


def _remember(record: IdempotencyRecord, created: Created) -> Created:
    record.resource_id = created.resource_id
    record.answer = json.dumps(created.answer)
    if created.secret is not None:
        record.secret_day, record.secret_ciphertext = expiring_secrets.seal(
            created.secret, bound_to=_binding(record, created.resource_id)
        )
    record.save(update_fields=["resource_id", "answer", "secret_day", "secret_ciphertext"])
    return created


def _secret_of(record: IdempotencyRecord, is_current: Callable[[str, str], bool]) -> str | None:
    if record.secret_day is None or record.secret_ciphertext is None:
        return None
    # By the database's clock: the one that stamped the record, and the one that all processes share.
    is_fresh = IdempotencyRecord.objects.filter(
        pk=record.pk, created_at__gt=Now() - expiring_secrets.READABLE_FOR
    ).exists()
    if not is_fresh:
        return None
    secret = expiring_secrets.unseal(
        record.secret_day, record.secret_ciphertext, bound_to=_binding(record, record.resource_id)
    )
    return secret if secret is not None and is_current(record.resource_id, secret) else None


def _binding(record: IdempotencyRecord, resource_id: str) -> str:
    # A ciphertext that is moved to another row does not open there.
    return f"{record.organization_id}/{record.admin_key_id}/{record.pk}/{resource_id}"


def _fingerprint(body: dict[str, Any]) -> str:
    """A digest of what the body means: spaces, order of names and escapes make no difference; null does."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
