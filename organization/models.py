"""Organizations, their projects, the keys of both, and the audit trail."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from organization.permissions import ADMIN_PERMISSIONS, CUSTOMER_PERMISSIONS

NAME_LENGTH = 200


class Organization(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=NAME_LENGTH, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.CheckConstraint(name="organization_name_not_empty", condition=~Q(name=""))]

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    """Keys and costs belong to a project. An archived one admits nothing and stays readable."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="projects")
    name = models.CharField(max_length=NAME_LENGTH)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(name="project_name_not_empty", condition=~Q(name="")),
            # So that creating a project by name can be repeated without making a second one.
            models.UniqueConstraint(
                name="active_project_name_unique_in_organization",
                fields=["organization", "name"],
                condition=Q(archived_at=None),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_active(self) -> bool:
        return self.archived_at is None


class KeyStatus(models.TextChoices):
    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"
    SUSPENDED = "suspended"


class ApiKey(models.Model):
    """What both kinds of key share. The value itself is stored nowhere; see `keys.digest_of`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=NAME_LENGTH)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    redacted_value = models.CharField(max_length=32, editable=False)
    permissions = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    suspended_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    # Of the value that a request came with, under each pepper; none unless the key was found by its value.
    presented_digests: tuple[str, ...] = ()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.name} ({self.redacted_value})"

    @property
    def status(self) -> KeyStatus:
        return self.status_at(timezone.now())

    def status_at(self, moment: datetime) -> KeyStatus:
        # Unspecified: key-transitions. Revocation is for ever and so is shown first; expiry comes with
        # time alone; suspension is the one that an operator can take back.
        if self.revoked_at is not None:
            return KeyStatus.REVOKED
        if self.expires_at is not None and self.expires_at <= moment:
            return KeyStatus.EXPIRED
        if self.suspended_at is not None:
            return KeyStatus.SUSPENDED
        return KeyStatus.ACTIVE


class ProjectKey(ApiKey):
    """A customer key: inference and model routes."""

    AVAILABLE_PERMISSIONS = CUSTOMER_PERMISSIONS
    project = models.ForeignKey(Project, models.PROTECT, related_name="api_keys")

    class Meta:
        verbose_name = "API key"
        constraints = [models.CheckConstraint(name="project_key_name_not_empty", condition=~Q(name=""))]

    @property
    def organization(self) -> Organization:
        """The project's organization; may query the database."""
        return self.project.organization


class AdminKey(ApiKey):
    """An Admin API key: organization routes."""

    AVAILABLE_PERMISSIONS = ADMIN_PERMISSIONS
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="admin_keys")

    class Meta:
        constraints = [models.CheckConstraint(name="admin_key_name_not_empty", condition=~Q(name=""))]
        indexes = [
            # For the list of admin keys, which pages in this order.
            models.Index(name="admin_key_in_list_order", fields=["organization", "created_at", "id"]),
        ]


class IdempotencyRecord(models.Model):
    """
    What an Idempotency-Key has made. It commits with the thing it made or not at all.

    The secret of a created key is here as ciphertext for 24 hours, under a key that is destroyed.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    key = models.CharField(max_length=200)
    admin_key = models.ForeignKey(AdminKey, models.PROTECT, related_name="+")
    operation = models.CharField(max_length=300)
    fingerprint = models.CharField(max_length=64)
    resource_id = models.CharField(max_length=200, default="")
    # Text, because PostgreSQL's JSON forgets the order of names and a replay is the same bytes.
    answer = models.TextField(default="")
    secret_day = models.DateField(null=True)
    secret_ciphertext = models.BinaryField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            # The lock: a second request with this key waits here for the first one's commit.
            models.UniqueConstraint(
                name="idempotency_key_unique_in_organization", fields=["organization", "key"]
            ),
            models.CheckConstraint(
                name="idempotency_secret_has_its_day",
                condition=Q(secret_day=None, secret_ciphertext=None)
                | Q(secret_day__isnull=False, secret_ciphertext__isnull=False),
            ),
        ]
        # For `prune_idempotency` only.
        indexes = [models.Index(name="idempotency_by_age", fields=["created_at"])]


class SecretDay(models.Model):
    """
    The key that encrypts one UTC day's secrets, itself encrypted by ENCRYPTION_KEYS.

    Deleting the row makes the day's ciphertexts unreadable in every backup as well.
    """

    day = models.DateField(primary_key=True)
    wrapped_key = models.BinaryField()


class AuditEvent(models.Model):
    """An entry of the audit trail. Written by the service that acted, in its transaction; never changed."""

    class ActorKind(models.TextChoices):
        ADMIN_KEY = "admin_key"
        STAFF = "staff"
        COMMAND = "command"
        SYSTEM = "system"

    id = models.BigAutoField(primary_key=True)
    occurred_at = models.DateTimeField(default=timezone.now)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+", null=True)
    actor_kind = models.CharField(max_length=10, choices=ActorKind)
    actor_id = models.CharField(max_length=64)
    actor_label = models.CharField(max_length=250)
    action = models.CharField(max_length=60)
    target_kind = models.CharField(max_length=60)
    target_id = models.CharField(max_length=200)
    details = models.JSONField(default=dict)
    request_id = models.CharField(max_length=36, blank=True)
    # See organization/audit/chain.py. Null in events that are older than the chain.
    seal = models.CharField(max_length=80, null=True, editable=False)  # noqa: DJ001 - a column to be added

    class Meta:
        verbose_name_plural = "audit trail"
        constraints = [
            # With a condition, because SQLite would rebuild the table for one without, and lose its triggers.
            models.UniqueConstraint(
                name="audit_seal_used_once", fields=["seal"], condition=Q(seal__isnull=False)
            ),
            models.CheckConstraint(
                name="audit_actor_known",
                condition=Q(actor_kind__in=["admin_key", "staff", "command", "system"]),
            ),
        ]
        indexes = [
            # For the console's trail of one organization, newest first.
            models.Index(name="audit_of_organization", fields=["organization", "-occurred_at"]),
            # For the trail of one thing.
            models.Index(name="audit_of_target", fields=["target_id", "-occurred_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target_kind} {self.target_id}"


class AuditLink(models.Model):
    """One audit event's place in the hash chain: see `organization.audit.chain`."""

    number = models.BigIntegerField(primary_key=True)
    # No reference: the link of an event that was removed shows that it was there.
    event_id = models.BigIntegerField(unique=True)
    digest = models.CharField(max_length=64)
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"link {self.number} of event {self.event_id}"


class AuditChainHead(models.Model):
    """The end of the chain, in the only row. Whoever adds a link locks it."""

    id = models.SmallIntegerField(primary_key=True)
    number = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.number} links, {self.digest}"
