"""Policies: yes-or-no questions with a draft, immutable published versions, and the verdicts of judges."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from organization.models import Organization, Project

NAME_LENGTH, DESCRIPTION_LENGTH, RULE_LENGTH = 80, 240, 20_000
MAX_PROJECTS = 1_000
MIN_THRESHOLD, MAX_THRESHOLD = 1, 9_999
# The largest that a client can send back.
MAX_REVISION = 2**31 - 1


class Direction(models.TextChoices):
    REQUEST = "request"
    RESPONSE = "response"
    BOTH = "both"


class Mode(models.TextChoices):
    MONITORING = "monitoring"
    ENFORCING = "enforcing"


class PolicyScope(models.TextChoices):
    ORGANIZATION = "organization"
    PROJECTS = "projects"
    UNATTACHED = "unattached"


class PolicyState(models.TextChoices):
    DRAFT = "draft"
    MONITORING = "monitoring"
    ENFORCING = "enforcing"
    PAUSED = "paused"


IN_FORCE = (PolicyState.MONITORING, PolicyState.ENFORCING)


class Terms(models.Model):
    """What a draft and a version have in common: what is asked, of what, for whom and with what effect."""

    rule = models.TextField(max_length=RULE_LENGTH)
    direction = models.CharField(max_length=8, choices=Direction, default=Direction.BOTH)
    # What a person who says nothing gets must not refuse anybody's requests.
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.MONITORING)
    scope = models.CharField(max_length=12, choices=PolicyScope, default=PolicyScope.ORGANIZATION)
    # Ids as text, in the order given. Read only as a whole, so a table of pairs would earn nothing.
    project_ids = models.JSONField(default=list, blank=True)

    class Meta:
        abstract = True


class Policy(Terms):
    """A question. Its editable draft is in the inherited fields, and nothing reads that until published."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="policies")
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.CharField(max_length=DESCRIPTION_LENGTH, blank=True, default="")
    # Null: the deployment's default, as it is when the draft is published.
    match_threshold_basis_points = models.IntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=PolicyState, default=PolicyState.DRAFT, editable=False)
    revision = models.BigIntegerField(default=1, editable=False)
    current_version = models.ForeignKey(
        "PolicyVersion", models.PROTECT, related_name="+", null=True, editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(
                name="policy_state_known",
                condition=Q(state__in=["draft", "monitoring", "enforcing", "paused"]),
            ),
            # `draft` is the only state that a never-published policy can be in, and the only one that a
            # published policy cannot be in.
            models.CheckConstraint(
                name="policy_draft_iff_unpublished",
                condition=Q(state="draft", current_version=None)
                | (~Q(state="draft") & Q(current_version__isnull=False)),
            ),
            models.CheckConstraint(
                name="policy_revision_can_be_sent_back",
                condition=Q(revision__gte=1, revision__lte=2_147_483_647),
            ),
            models.CheckConstraint(name="policy_name_not_empty", condition=~Q(name="")),
            models.CheckConstraint(name="policy_rule_is_a_question", condition=Q(rule__endswith="?")),
            models.CheckConstraint(
                name="policy_direction_known", condition=Q(direction__in=["request", "response", "both"])
            ),
            models.CheckConstraint(
                name="policy_mode_known", condition=Q(mode__in=["monitoring", "enforcing"])
            ),
            models.CheckConstraint(
                name="policy_scope_known", condition=Q(scope__in=["organization", "projects", "unattached"])
            ),
            models.CheckConstraint(
                name="policy_threshold_in_bounds",
                condition=Q(match_threshold_basis_points=None)
                | Q(match_threshold_basis_points__gte=1, match_threshold_basis_points__lte=9_999),
            ),
        ]
        indexes = [
            # For what is in force in one organization; drafts and paused policies are not in it.
            models.Index(
                name="policy_in_force",
                fields=["organization", "created_at", "id"],
                condition=Q(state__in=["monitoring", "enforcing"]),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def threshold_if_published(self) -> int:
        """The draft's threshold, with what null stands for filled in."""
        if self.match_threshold_basis_points is not None:
            return self.match_threshold_basis_points
        return int(settings.GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS)

    @property
    def has_unpublished_changes(self) -> bool:
        """Whether publishing would change anything. Reads the current version and so may query."""
        version = self.current_version
        if version is None:
            return True
        return (
            self.rule,
            self.direction,
            self.mode,
            self.scope,
            self.project_ids,
            self.threshold_if_published,
        ) != (
            version.rule,
            version.direction,
            version.mode,
            version.scope,
            version.project_ids,
            version.match_threshold_basis_points,
        )


class PolicyVersion(Terms):
    """What was published, as it was. A trigger keeps it so."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    policy = models.ForeignKey(Policy, models.PROTECT, related_name="versions")
    version = models.IntegerField()
    match_threshold_basis_points = models.IntegerField()
    published_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "version"
        constraints = [
            models.UniqueConstraint(name="policy_version_unique", fields=["policy", "version"]),
            models.CheckConstraint(name="policy_version_counts_from_1", condition=Q(version__gte=1)),
            models.CheckConstraint(name="policy_version_rule_is_a_question", condition=Q(rule__endswith="?")),
            models.CheckConstraint(
                name="policy_version_direction_known",
                condition=Q(direction__in=["request", "response", "both"]),
            ),
            models.CheckConstraint(
                name="policy_version_mode_known", condition=Q(mode__in=["monitoring", "enforcing"])
            ),
            models.CheckConstraint(
                name="policy_version_scope_known",
                condition=Q(scope__in=["organization", "projects", "unattached"]),
            ),
            models.CheckConstraint(
                name="policy_version_threshold_in_bounds",
                condition=Q(match_threshold_basis_points__gte=1, match_threshold_basis_points__lte=9_999),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy} v{self.version}"


class PolicyEpoch(models.Model):
    """
    Counts the changes to what is in force in one organization. It moves in the transaction of the change.

    A process that has read it knows whether what it remembers still holds: see `attachment`.
    """

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="policy_epoch"
    )
    value = models.BigIntegerField(default=0)


class VerdictOutcome(models.TextChoices):
    MATCH = "match"
    NO_MATCH = "no_match"
    INCONCLUSIVE = "inconclusive"


class Verdict(models.Model):
    """The verdict of a judge on one text of one request. The text itself is not stored."""

    id = models.BigAutoField(primary_key=True)
    occurred_at = models.DateTimeField(default=timezone.now)
    version = models.ForeignKey(PolicyVersion, models.PROTECT, related_name="verdicts")
    project = models.ForeignKey(Project, models.PROTECT, related_name="+")
    request_id = models.UUIDField()
    direction = models.CharField(max_length=8, choices=[("request", "Request"), ("response", "Response")])
    mode = models.CharField(max_length=10, choices=Mode)
    outcome = models.CharField(max_length=12, choices=VerdictOutcome)
    # P(yes); of an answer that was judged window by window, the highest.
    score = models.FloatField(null=True)
    threshold_basis_points = models.IntegerField()
    judge = models.CharField(max_length=200)
    latency_ms = models.IntegerField()
    # Judgements behind this row; more than one where an answer was released in windows.
    judgements = models.IntegerField(default=1)
    # A word for why there is no score.
    reason = models.CharField(max_length=60, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="verdict_direction_known", condition=Q(direction__in=["request", "response"])
            ),
            models.CheckConstraint(
                name="verdict_mode_known", condition=Q(mode__in=["monitoring", "enforcing"])
            ),
            models.CheckConstraint(
                name="verdict_score_unless_inconclusive",
                # A comparison with null is neither true nor false, and a constraint lets that pass.
                condition=Q(outcome="inconclusive", score=None)
                | Q(outcome__in=["match", "no_match"], score__isnull=False, score__gte=0, score__lte=1),
            ),
        ]
        indexes = [
            # For what each threshold would have blocked, and for the console's list of one version.
            models.Index(name="verdict_of_version", fields=["version", "-occurred_at"]),
            # For `prune_verdicts`, and for the newest in the console.
            models.Index(name="verdict_by_age", fields=["occurred_at"]),
            # For everything about one request.
            models.Index(name="verdict_of_request", fields=["request_id"]),
        ]

    def __str__(self) -> str:
        return f"{self.outcome.replace('_', ' ')} by {self.judge}".capitalize()


class DailyVerdicts(models.Model):
    """How the verdicts of one version on one UTC day came out. Outlives the verdicts, which are pruned."""

    id = models.BigAutoField(primary_key=True)
    day = models.DateField()
    version = models.ForeignKey(PolicyVersion, models.PROTECT, related_name="daily_verdicts")
    matches = models.BigIntegerField(default=0)
    no_matches = models.BigIntegerField(default=0)
    inconclusive = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "daily verdicts"
        constraints = [
            # Also the index of the overview.
            models.UniqueConstraint(name="daily_verdicts_unique", fields=["day", "version"]),
        ]

    def __str__(self) -> str:
        return f"verdicts of {self.version_id} on {self.day}"
