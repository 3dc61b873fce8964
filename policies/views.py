"""The policy routes: parse, call one service, render."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from organization import idempotency
from organization.audit.trail import Actor
from organization.idempotency import Created
from organization.models import Project
from organization.views import IDEMPOTENCY_KEY, OrganizationViewSet
from policies import services
from policies.enforcement import attachment
from policies.models import Policy
from policies.serializers import (
    EffectivePolicyList,
    PolicyCreateRequest,
    PolicyEditRequest,
    PolicyPauseRequest,
    PolicyResponse,
)


class PolicyViewSet(OrganizationViewSet):
    required_permissions = {
        "create": "policies:write",
        "retrieve": "policies:read",
        "partial_update": "policies:write",
        "pause": "policies:write",
    }
    queryset = Policy.objects.none()  # for the schema; requests use get_queryset
    serializer_class = PolicyResponse
    lookup_url_kwarg = "policy_id"

    def get_queryset(self) -> QuerySet[Policy]:
        # The tenant wall.
        rows = Policy.objects.select_related("organization", "current_version")
        return rows.filter(organization=self.organization)

    @extend_schema(
        tags=["Policies"],
        operation_id="createPolicy",
        summary="Create a policy draft",
        request=PolicyCreateRequest,
        responses={200: PolicyResponse},
        parameters=[IDEMPOTENCY_KEY],
    )
    def create(self, request: Any) -> Response:
        """Nothing is activated: a draft applies to no request until it is published."""
        self.refuse_query(request)
        body = PolicyCreateRequest(data=request.data)
        body.is_valid(raise_exception=True)
        idempotency_key = idempotency.key_from(request.scope["headers"])

        def create() -> Created:
            policy = services.create_policy(
                organization=self.organization, actor=Actor.admin_key(request.auth), **body.validated_data
            )
            return Created(str(policy.pk), json.loads(JSONRenderer().render(PolicyResponse(policy).data)))

        created = idempotency.create_once(
            admin_key=request.auth,
            operation="policies",
            key=idempotency_key,
            body=body.validated_data,
            create=create,
            is_current=_has_no_secret,
        )
        # Unspecified: creation-status. A replay is the answer of the creation, whatever was edited since.
        return Response(created.answer)

    @extend_schema(
        tags=["Policies"],
        operation_id="getPolicy",
        summary="Read a policy",
        responses={200: PolicyResponse},
    )
    def retrieve(self, request: Any, policy_id: str) -> Response:
        """With its current revision, the editable draft and what is published."""
        self.refuse_query(request)
        return Response(PolicyResponse(self.find(self.get_queryset(), policy_id)).data)

    @extend_schema(
        tags=["Policies"],
        operation_id="updatePolicy",
        summary="Edit a policy draft",
        request=PolicyEditRequest,
        responses={200: PolicyResponse},
    )
    def partial_update(self, request: Any, policy_id: str) -> Response:
        """What is published stays as it is until the next publication. `revision` is the latest one."""
        self.refuse_query(request)
        body = PolicyEditRequest(data=request.data)
        body.is_valid(raise_exception=True)
        changes = dict(body.validated_data)
        policy = services.edit_policy(
            policy=self.find(self.get_queryset(), policy_id),
            revision=changes.pop("revision"),
            changes=changes,
            actor=Actor.admin_key(request.auth),
        )
        return Response(PolicyResponse(policy).data)

    @extend_schema(
        tags=["Policies"],
        operation_id="pausePolicy",
        summary="Pause a policy",
        request=PolicyPauseRequest,
        responses={200: PolicyResponse},
    )
    @action(detail=True, methods=["post"])
    def pause(self, request: Any, policy_id: str) -> Response:
        """A published policy stops applying to requests that start from now on."""
        self.refuse_query(request)
        body = PolicyPauseRequest(data=request.data)
        body.is_valid(raise_exception=True)
        policy = services.pause_policy(
            policy=self.find(self.get_queryset(), policy_id),
            revision=body.validated_data["revision"],
            actor=Actor.admin_key(request.auth),
        )
        return Response(PolicyResponse(policy).data)


class EffectivePolicyViewSet(OrganizationViewSet):
    required_permissions = {"list": "policies:read"}
    queryset = Project.objects.none()
    serializer_class = EffectivePolicyList
    lookup_url_kwarg = "project_id"

    def get_queryset(self) -> QuerySet[Project]:
        return Project.objects.filter(organization=self.organization)

    @extend_schema(
        tags=["Policies"],
        operation_id="listEffectivePolicies",
        summary="List effective policies",
        responses={200: EffectivePolicyList},
    )
    def list(self, request: Any, project_id: str) -> Response:
        """
        Published policies that apply to every request of the project.

        Those that a request names in `policy_ids` are additional.
        """
        self.refuse_query(request)
        project = self.find(self.get_queryset(), project_id)
        return Response(EffectivePolicyList({"data": attachment.effective_policies(project)}).data)


def _has_no_secret(resource_id: str, secret: str) -> bool:
    return False
