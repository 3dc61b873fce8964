"""The shapes of the policy routes: what an administrator may write and what one may see."""

from __future__ import annotations

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from rest_framework import serializers

from gateway_site.api.serializers import Constant, StrictSerializer, StrictString, UnixTime
from policies.models import (
    DESCRIPTION_LENGTH,
    MAX_PROJECTS,
    MAX_REVISION,
    MAX_THRESHOLD,
    MIN_THRESHOLD,
    NAME_LENGTH,
    RULE_LENGTH,
    Direction,
    Mode,
    Policy,
    PolicyScope,
    PolicyState,
    PolicyVersion,
)


class WholeNumber(serializers.IntegerField):
    """A JSON number without a fraction, however written: 5.0 is 5. To DRF, "5" and True would do as well."""

    def __init__(self, *, minimum: int, maximum: int, **options: Any) -> None:
        super().__init__(min_value=minimum, max_value=maximum, **options)
        sentence = f"This must be a whole number from {minimum} to {maximum}."
        self.validators = [MinValueValidator(minimum, sentence), MaxValueValidator(maximum, sentence)]
        self.error_messages["invalid"] = sentence

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int and not (type(data) is float and data.is_integer()):
            self.fail("invalid")
        return int(data)


class MaybeText(serializers.CharField):
    """A JSON string that may be empty, kept as it was sent."""

    def __init__(self, **options: Any) -> None:
        # For the document's readers: the parser refuses NUL before.
        no_nul = RegexValidator(r"^[^\x00]*$", "This must not hold a NUL character.")
        super().__init__(trim_whitespace=False, allow_blank=True, validators=[no_nul], **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("This must be a string.")
        return data


class QuestionText(StrictString):
    """The rule of a policy: a text that ends with a question mark."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=RULE_LENGTH, **options)
        # In place of the pattern for text, since a document's reader is shown one; `\Z` and not `$`, which
        # would let a line end follow.
        ends_well = RegexValidator(r"^[^\x00]*\?\Z", "This must be a question that ends with `?`.")
        others = [each for each in self.validators if not isinstance(each, RegexValidator)]
        self.validators = [*others, ends_well]


class Word(serializers.ChoiceField):
    """A JSON string that is one of a list of words."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            raise serializers.ValidationError("This must be a string.")
        return super().to_internal_value(data)


class DraftRequest(StrictSerializer):
    """What a creation and an edit share. What is absent stays as it is; there are no defaults here."""

    description = MaybeText(max_length=DESCRIPTION_LENGTH, required=False)
    direction = Word(Direction.choices, required=False)
    mode = Word(Mode.choices, required=False)
    scope = Word(PolicyScope.choices, required=False)
    project_ids = serializers.ListField(
        child=StrictString(max_length=200), max_length=MAX_PROJECTS, required=False, allow_empty=True
    )
    match_threshold_basis_points = WholeNumber(
        minimum=MIN_THRESHOLD,
        maximum=MAX_THRESHOLD,
        required=False,
        allow_null=True,
        help_text="Null restores the default.",
    )


class PolicyCreateRequest(DraftRequest):
    name = StrictString(max_length=NAME_LENGTH)
    rule = QuestionText(help_text="A yes-or-no question that ends with `?`.")


class PolicyEditRequest(DraftRequest):
    revision = WholeNumber(minimum=1, maximum=MAX_REVISION)
    name = StrictString(max_length=NAME_LENGTH, required=False)
    rule = QuestionText(required=False, help_text="A yes-or-no question that ends with `?`.")


class PolicyPauseRequest(StrictSerializer):
    revision = WholeNumber(minimum=1, maximum=MAX_REVISION)


class PolicyDraftResponse(serializers.ModelSerializer):
    project_ids = serializers.ListField(child=serializers.CharField(), read_only=True)
    base_version = serializers.SerializerMethodField()

    class Meta:
        model = Policy
        fields = [
            "rule",
            "direction",
            "mode",
            "scope",
            "project_ids",
            "match_threshold_basis_points",
            "base_version",
        ]
        read_only_fields = fields

    def get_base_version(self, policy: Policy) -> int:
        """The version that the draft grew from; 0 where there is none, since the field is a number."""
        return policy.current_version.version if policy.current_version else 0


class PolicyVersionResponse(serializers.ModelSerializer):
    object = Constant("organization.policy.version")
    project_ids = serializers.ListField(child=serializers.CharField(), read_only=True)
    published_at = UnixTime()
    current = serializers.SerializerMethodField()

    class Meta:
        model = PolicyVersion
        fields = [
            "id",
            "object",
            "version",
            "rule",
            "direction",
            "mode",
            "scope",
            "project_ids",
            "match_threshold_basis_points",
            "published_at",
            "current",
        ]
        read_only_fields = fields

    def get_current(self, version: PolicyVersion) -> bool:
        return True  # the only one that is ever shown


class PolicyResponse(serializers.ModelSerializer):
    object = Constant("organization.policy")
    state = serializers.ChoiceField(PolicyState.choices, read_only=True)
    revision = serializers.IntegerField(read_only=True, min_value=1, max_value=MAX_REVISION)
    has_unpublished_changes = serializers.BooleanField(read_only=True)
    created_at = UnixTime()
    updated_at = UnixTime()
    draft = PolicyDraftResponse(source="*", read_only=True)
    current_version = serializers.IntegerField(
        source="current_version.version", read_only=True, allow_null=True, default=None
    )
    published = PolicyVersionResponse(source="current_version", read_only=True, allow_null=True)

    class Meta:
        model = Policy
        fields = [
            "id",
            "object",
            "name",
            "description",
            "state",
            "revision",
            "has_unpublished_changes",
            "created_at",
            "updated_at",
            "draft",
            "current_version",
            "published",
        ]
        read_only_fields = fields


class EffectivePolicyResponse(serializers.Serializer):
    """A policy that is in force, with its current version."""

    id = serializers.UUIDField()
    object = Constant("organization.effective_policy")
    name = serializers.CharField()
    version = serializers.IntegerField(source="current_version.version")
    direction = serializers.ChoiceField(Direction.choices, source="current_version.direction")
    mode = serializers.ChoiceField(Mode.choices, source="current_version.mode")
    scope = serializers.ChoiceField(PolicyScope.choices, source="current_version.scope")
    # Unspecified: effective-policy-source. The one value that is given: whose policy it is.
    source = Constant("organization")  # type: ignore[assignment]  # the spec's word is DRF's too


class EffectivePolicyList(serializers.Serializer):
    object = Constant("list")
    data = EffectivePolicyResponse(many=True)  # type: ignore[assignment]
