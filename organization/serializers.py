"""The shapes of the organization routes: what a caller may write and what a caller may see."""

from __future__ import annotations

from rest_framework import serializers

from gateway_site.api.serializers import Constant, StrictSerializer, StrictString, UnixTime
from organization.models import NAME_LENGTH, AdminKey, KeyStatus, ProjectKey


class ProjectKeyRequest(StrictSerializer):
    # Unspecified: key-name-length.
    name = StrictString(max_length=NAME_LENGTH)


class ProjectOwner(serializers.Serializer):
    id = serializers.UUIDField()
    type = Constant("project")
    name = serializers.CharField()


class KeyResponse(serializers.ModelSerializer):
    """What both kinds of key show of themselves."""

    created_at = UnixTime()
    last_used_at = UnixTime(allow_null=True)
    expires_at = UnixTime(allow_null=True)
    permissions = serializers.ListField(child=serializers.CharField(), read_only=True)


class ProjectKeyResponse(KeyResponse):
    object = Constant("organization.project.api_key")
    owner = ProjectOwner(source="project", read_only=True)
    status = serializers.ChoiceField(KeyStatus.choices, read_only=True)

    class Meta:
        model = ProjectKey
        fields = [
            "id",
            "object",
            "name",
            "redacted_value",
            "created_at",
            "last_used_at",
            "expires_at",
            "owner",
            "status",
            "permissions",
        ]
        read_only_fields = fields


class CreatedProjectKeyResponse(ProjectKeyResponse):
    value = serializers.CharField(
        required=False,
        help_text="The full credential: at creation, and on an identical replay within 24 hours.",
    )

    class Meta(ProjectKeyResponse.Meta):
        fields = [*ProjectKeyResponse.Meta.fields, "value"]


class ProjectArchiveResponse(serializers.Serializer):
    id = serializers.UUIDField()
    object = Constant("organization.project.deleted")
    deleted = serializers.BooleanField()


class OrganizationOwner(serializers.Serializer):
    id = serializers.UUIDField(source="organization_id")
    type = Constant("organization")


class AdminKeyResponse(KeyResponse):
    object = Constant("organization.admin_api_key")
    owner = OrganizationOwner(source="*", read_only=True)

    class Meta:
        model = AdminKey
        fields = [
            "id",
            "object",
            "name",
            "redacted_value",
            "created_at",
            "last_used_at",
            "expires_at",
            "owner",
            "permissions",
        ]
        read_only_fields = fields


class AdminKeyPage(serializers.Serializer):
    object = Constant("list")
    data = AdminKeyResponse(many=True)  # type: ignore[assignment]  # the spec's word is DRF's too
    has_more = serializers.BooleanField()
    first_id = serializers.UUIDField(allow_null=True)
    last_id = serializers.UUIDField(allow_null=True)


class AdminKeyRevokeResponse(serializers.Serializer):
    id = serializers.UUIDField()
    object = Constant("organization.admin_api_key.deleted")
    deleted = serializers.BooleanField()
