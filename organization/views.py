"""The organization routes: parse, call one service, render."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway_site.api import pagination
from gateway_site.api.errors import InvalidRequest, NotFound
from gateway_site.api.identifiers import uuid_or_none
from gateway_site.api.pagination import single_values
from organization import idempotency, services
from organization.audit.trail import Actor
from organization.idempotency import Created
from organization.models import AdminKey, Organization, Project
from organization.serializers import (
    AdminKeyPage,
    AdminKeyResponse,
    AdminKeyRevokeResponse,
    CreatedProjectKeyResponse,
    ProjectArchiveResponse,
    ProjectKeyRequest,
    ProjectKeyResponse,
)

AnyModel = TypeVar("AnyModel", bound=Model)

IDEMPOTENCY_KEY = OpenApiParameter(
    name=idempotency.HEADER,
    location=OpenApiParameter.HEADER,
    required=True,
    type={"type": "string", "minLength": 8, "maxLength": 200, "pattern": r"^[\x20-\x7e]+$"},
    description="8 to 200 printable characters; to be used again only for an identical operation.",
)


class OrganizationViewSet(GenericViewSet):
    """Everything that an admin key reaches starts at its own organization."""

    required_permissions: dict[str, str] = {}
    http_method_names = ["get", "head", "post", "patch", "delete"]

    @property
    def organization(self) -> Organization:
        key: AdminKey = self.request.auth  # type: ignore[assignment]
        return key.organization

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().dispatch(request, *args, **kwargs)
        finally:
            self._drop_body(request)

    def _drop_body(self, request: Any) -> None:
        """
        Let go of what the client sent, of whatever size and whoever it was.

        The requests of Django and of DRF, the view, its serializers and the response hold each other until
        the garbage collector comes by, which is after hundreds of requests.
        """
        request._body = b""
        kept = vars(self.request)
        kept.pop("_stream", None)
        if type(sent := kept.get("_full_data")) is dict:
            sent.clear()

    def initialize_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        # A chunked body comes without a Content-Length, which DRF takes for no body at all.
        request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def find(self, rows: QuerySet[AnyModel], identifier: str) -> AnyModel:
        """The row with this id in the caller's organization. A stranger's is the same 404 as none at all."""
        key = uuid_or_none(identifier)
        found = rows.filter(pk=key).first() if key else None
        if found is None:
            raise NotFound()
        return found

    def refuse_query(self, request: Any) -> None:
        single_values(request.query_params, set())

    def refuse_body(self, request: Any) -> None:
        """These routes take no body. An empty one of any type is fine; the SDKs send that."""
        if request.body.strip(b" \t\r\n") not in (b"", b"{}"):
            raise InvalidRequest("This route takes no body.")


class ProjectViewSet(OrganizationViewSet):
    required_permissions = {"create_key": "project_api_keys:create", "archive": "projects:create"}
    queryset = Project.objects.none()  # for the schema; requests use get_queryset
    serializer_class = ProjectArchiveResponse
    lookup_url_kwarg = "project_id"

    def get_queryset(self) -> QuerySet[Project]:
        # The tenant wall.
        return Project.objects.select_related("organization").filter(organization=self.organization)

    @extend_schema(
        tags=["Project keys"],
        operation_id="createProjectApiKey",
        summary="Create a project key",
        request=ProjectKeyRequest,
        responses={200: CreatedProjectKeyResponse},
        parameters=[IDEMPOTENCY_KEY],
    )
    @action(detail=True, methods=["post"], url_path="api_keys")
    def create_key(self, request: Any, project_id: str) -> Response:
        """The project must be active. Save `value` securely: it is shown once."""
        self.refuse_query(request)
        body = ProjectKeyRequest(data=request.data)
        body.is_valid(raise_exception=True)
        idempotency_key = idempotency.key_from(request.scope["headers"])
        project = self.find(self.get_queryset(), project_id)

        def create() -> Created:
            made = services.create_project_key(
                project=project, actor=Actor.admin_key(request.auth), **body.validated_data
            )
            answer = json.loads(JSONRenderer().render(ProjectKeyResponse(made.key).data))
            return Created(str(made.key.pk), answer, made.value)

        created = idempotency.create_once(
            admin_key=request.auth,
            operation=f"projects/{project.pk}/api_keys",
            key=idempotency_key,
            body=body.validated_data,
            create=create,
            is_current=services.is_current_project_key,
        )
        secret = {"value": created.secret} if created.secret is not None else {}
        # Unspecified: creation-status. 200 for a creation and its replay, as every creation of the
        # API that the SDKs were made for.
        return Response({**created.answer, **secret})

    @extend_schema(
        tags=["Projects"],
        operation_id="archiveProject",
        summary="Archive a project",
        request=None,
        responses={200: ProjectArchiveResponse},
    )
    @action(detail=True, methods=["post"])
    def archive(self, request: Any, project_id: str) -> Response:
        """Its customer keys can no longer admit new inference; existing usage remains readable."""
        self.refuse_query(request)
        self.refuse_body(request)
        project = self.find(self.get_queryset(), project_id)
        services.archive_project(project=project, actor=Actor.admin_key(request.auth))
        return Response(ProjectArchiveResponse({"id": project.pk, "deleted": True}).data)


class AdminKeyViewSet(OrganizationViewSet):
    required_permissions = {"list": "admin_api_keys:read", "destroy": "admin_api_keys:revoke"}
    queryset = AdminKey.objects.none()
    serializer_class = AdminKeyResponse
    lookup_url_kwarg = "api_key_id"

    def get_queryset(self) -> QuerySet[AdminKey]:
        return AdminKey.objects.filter(organization=self.organization)

    @extend_schema(
        tags=["Admin keys"],
        operation_id="listAdminApiKeys",
        summary="List Admin API keys",
        responses={200: AdminKeyPage},
        parameters=[
            OpenApiParameter(
                pagination.CURSOR,
                {"type": "string", "minLength": 1, "maxLength": 200},
                description="Continue after this id, the last one of the previous page.",
            ),
            OpenApiParameter(
                pagination.PAGE_SIZE, {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
            ),
            OpenApiParameter(pagination.ORDER, {"type": "string", "enum": ["asc", "desc"], "default": "asc"}),
        ],
    )
    def list(self, request: Any) -> Response:
        """In order of creation. Revoked keys are not listed."""
        everyone = self.get_queryset()
        return Response(
            pagination.page(
                request.query_params,
                everyone.filter(revoked_at=None),
                all_rows=everyone,
                represent=lambda key: AdminKeyResponse(key).data,
            )
        )

    @extend_schema(
        tags=["Admin keys"],
        operation_id="revokeAdminApiKey",
        summary="Revoke an Admin API key",
        responses={200: AdminKeyRevokeResponse},
    )
    def destroy(self, request: Any, api_key_id: str) -> Response:
        """The credential stops working at once. Revoking it again changes nothing."""
        self.refuse_query(request)
        self.refuse_body(request)
        key = self.find(self.get_queryset(), api_key_id)
        services.revoke_key(key=key, actor=Actor.admin_key(request.auth))
        return Response(AdminKeyRevokeResponse({"id": key.pk, "deleted": True}).data)
