"""Tables of backends, models and their deployments, and of the requests that were served."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.functional import cached_property

from billing.models import PriceVersion
from billing.prices import versions
from inference.catalog.vocabularies import USUAL_VOCABULARY
from organization.models import NAME_LENGTH, Organization, Project, ProjectKey

MODEL_ID_LENGTH = 200


class Backend(models.Model):
    """A server that generates, with its credential. Its kind decides which protocol it is asked in."""

    name = models.CharField(max_length=NAME_LENGTH, unique=True)
    # A key of `inference.backends.kinds.KINDS`, which the service checks: a new kind is no migration.
    kind = models.CharField(max_length=40)
    # Empty for a kind that has no address.
    base_url = models.CharField(max_length=500, blank=True)
    # Encrypted by ENCRYPTION_KEYS. Written by a service, read by the process that calls, shown to nobody.
    credential_ciphertext = models.BinaryField(null=True, editable=False)
    # How this server differs from others of its kind: {"server": "vllm", "lacks": ["seed"]}.
    options = models.JSONField(default=dict, blank=True)
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    probed_at = models.DateTimeField(null=True, blank=True, editable=False)
    probe_problem = models.CharField(max_length=500, blank=True, editable=False)

    def __str__(self) -> str:
        return self.name


class CatalogModel(models.Model):
    """
    A model as customers know it. What it costs is in its price versions.

    A model without a price is not free: it is not served.
    """

    id = models.CharField(max_length=MODEL_ID_LENGTH, primary_key=True)
    display_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    owned_by = models.CharField(max_length=NAME_LENGTH, default="gateway")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    is_enabled = models.BooleanField(default=True)

    context_length = models.PositiveIntegerField(default=8192)
    max_output_length = models.PositiveIntegerField(default=4096)
    # A vocabulary of `inference.tokenizer`, and whether it is the model's own rather than the nearest one.
    tokenizer = models.CharField(max_length=40, default=USUAL_VOCABULARY)
    is_tokenizer_exact = models.BooleanField("tokenizer is exact", default=False)
    input_modalities = models.JSONField(default=list)
    output_modalities = models.JSONField(default=list)
    supported_sampling_parameters = models.JSONField(default=list, blank=True)
    supported_features = models.JSONField(default=list, blank=True)
    quantization = models.CharField(max_length=40, blank=True)
    # What an organization must have passed (see PassedCheck) before it may use the model.
    required_checks = models.JSONField(default=list, blank=True)

    class Meta:
        verbose_name = "model"
        constraints = [
            models.CheckConstraint(name="model_id_not_empty", condition=~Q(id="")),
            models.CheckConstraint(name="model_tokenizer_not_empty", condition=~Q(tokenizer="")),
            models.CheckConstraint(
                name="model_lengths_positive", condition=Q(context_length__gte=1, max_output_length__gte=1)
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @cached_property
    def price_version(self) -> PriceVersion | None:
        """The version of its price that is in force, read once; None where it has no price."""
        return versions.in_force_for(self.pk)


def read_price_versions(models_: Iterable[CatalogModel]) -> None:
    """Read the price versions in force of many models at once."""
    by_id = {model.pk: model for model in models_}
    found = versions.in_force(by_id)
    for model_id, model in by_id.items():
        model.__dict__["price_version"] = found.get(model_id)


class Deployment(models.Model):
    """A model on one backend, under the name that the backend knows it by."""

    model = models.ForeignKey(CatalogModel, models.CASCADE, related_name="deployments")
    backend = models.ForeignKey(Backend, models.PROTECT, related_name="deployments")
    upstream_id = models.CharField(max_length=MODEL_ID_LENGTH)
    weight = models.PositiveIntegerField(default=100)
    is_enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="deployment_once", fields=["model", "backend", "upstream_id"]),
            models.CheckConstraint(name="deployment_weight_positive", condition=Q(weight__gte=1)),
        ]

    def __str__(self) -> str:
        return f"{self.upstream_id} on {self.backend_id}"


class PassedCheck(models.Model):
    """A condition of some models, such as `terms-accepted`, that an organization has met."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")
    check_name = models.CharField("check", max_length=NAME_LENGTH)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="check_passed_once", fields=["organization", "check_name"]),
            models.CheckConstraint(name="check_name_not_empty", condition=~Q(check_name="")),
        ]

    def __str__(self) -> str:
        # Where it was read along: a name is not worth a query.
        known = self._state.fields_cache.get("organization")
        return f"{self.check_name} of {known or self.organization_id}"


class Activity(models.Model):
    """
    What became of one request. Never a prompt, a completion or a key.

    Without database constraints on the three owners, for the reason given at billing's Reservation.
    """

    # The request's X-Request-ID, and the id of its reservation where it came that far.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField()
    # Lists are in this order: a request is news when it ends, which may be minutes after it came.
    ended_at = models.DateTimeField()
    organization = models.ForeignKey(
        Organization, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        ProjectKey, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    endpoint = models.CharField(max_length=40)
    model = models.CharField(max_length=MODEL_ID_LENGTH)
    deployment = models.CharField(max_length=MODEL_ID_LENGTH + NAME_LENGTH + 10, blank=True)
    is_stream = models.BooleanField(default=False)
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=60, blank=True)
    prompt_tokens = models.BigIntegerField(null=True)
    cached_tokens = models.BigIntegerField(null=True)
    completion_tokens = models.BigIntegerField(null=True)
    reasoning_tokens = models.BigIntegerField(null=True)
    # None until the cost is final.
    cost_nanousd = models.BigIntegerField(null=True)
    first_token_ms = models.PositiveIntegerField(null=True)
    total_ms = models.PositiveIntegerField()
    attempts = models.PositiveSmallIntegerField(default=0)
    # Who was asked, one after another: {"deployment", "began_ms", "ended_ms", "code"}, with an empty code for
    # the one that answered.
    attempt_log = models.JSONField(default=list)

    class Meta:
        verbose_name = "request"
        # Its requests are charged to a customer's project, so it is more than looking.
        permissions = [("use_playground", "Can use the playground")]
        indexes = [
            # For the console's list, newest first: of all, and by each of its filters.
            models.Index(name="activity_newest", fields=["-ended_at"]),
            models.Index(name="activity_of_organization", fields=["organization", "-ended_at"]),
            models.Index(name="activity_of_project", fields=["project", "-ended_at"]),
            models.Index(name="activity_of_model", fields=["model", "-ended_at"]),
            # Few, and what people look for; also for the overview's latest failures.
            models.Index(name="activity_failed", fields=["-ended_at"], condition=Q(status__gte=400)),
            # Among those, what is not the client's own: fewer still, and lost there where many are refused.
            models.Index(name="activity_server_failed", fields=["-ended_at"], condition=Q(status__gte=500)),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class DailyActivity(models.Model):
    """
    What one key asked of one model on one UTC day, by the day on which the requests ended.

    Added to in the transaction that inserts the rows themselves, so it is their sum at every moment; the
    overview reads this and never the rows.
    """

    id = models.BigAutoField(primary_key=True)
    day = models.DateField()
    organization = models.ForeignKey(
        Organization, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        ProjectKey, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    model = models.CharField(max_length=MODEL_ID_LENGTH)
    requests = models.BigIntegerField()
    # Answered with 4xx: the client's own, or refused to it.
    refused = models.BigIntegerField()
    # Answered with 5xx: ours, or a backend's.
    failed = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    # How many requests had their first token within a time, and not within the shorter one before it.
    first_token_100_ms = models.BigIntegerField()
    first_token_250_ms = models.BigIntegerField()
    first_token_500_ms = models.BigIntegerField()
    first_token_1000_ms = models.BigIntegerField()
    first_token_2500_ms = models.BigIntegerField()
    first_token_5000_ms = models.BigIntegerField()
    first_token_later = models.BigIntegerField()

    class Meta:
        verbose_name_plural = "daily activity"
        constraints = [
            # Also the index of the overview: the days of all organizations, in order.
            models.UniqueConstraint(
                name="daily_activity_unique", fields=["day", "organization", "project", "api_key", "model"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} on {self.day}"
