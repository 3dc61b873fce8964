"""The routes that list and describe models, /v1/models."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway_site.api.errors import ModelNotConfigured, ModelNotFound, NotFound
from gateway_site.api.openapi.document import MODEL_STATUSES
from inference.catalog import served_models
from inference.models import CatalogModel, read_price_versions
from inference.serializers import ModelList, ModelResponse, model_object
from organization.authentication import CustomerKeyAuthentication


class ModelViewSet(GenericViewSet):
    authentication_classes = [CustomerKeyAuthentication]
    required_permissions = {"list": "models:read", "retrieve": "models:read"}
    error_statuses = MODEL_STATUSES
    http_method_names = ["get", "head"]
    queryset = CatalogModel.objects.none()  # for the schema
    serializer_class = ModelResponse

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self.action == "list" and not settings.GATEWAY_EXTENSIONS:
            # Before anyone is asked for a key: a route that is off is no route.
            raise NotFound("There is no such route.")
        super().initial(request, *args, **kwargs)

    @extend_schema(
        tags=["Models"],
        operation_id="listModels",
        summary="List the models",
        responses={200: ModelList},
        extensions={"x-extension": "openai"},
    )
    def list(self, request: Any) -> Response:
        """Those that are switched on and have a price, by id. An extension: the OpenAI SDK's route."""
        # Unspecified: unshown-endpoints.
        passed = served_models.checks_passed_by(request.auth.project.organization_id)
        models = list(served_models.enabled_models().order_by("pk"))
        read_price_versions(models)
        shown = [model_object(model, passed) for model in models]
        return Response({"object": "list", "data": [model for model in shown if model is not None]})

    @extend_schema(
        tags=["Models"],
        operation_id="retrieveModel",
        summary="Read one model",
        responses={200: ModelResponse},
        parameters=[
            OpenApiParameter(
                "model",
                {"type": "string", "minLength": 1},
                location=OpenApiParameter.PATH,
                description="The exact id; a slash in it may be percent-encoded or not.",
            )
        ],
    )
    def retrieve(self, request: Any, model: str) -> Response:
        """A model that the caller's organization may not use yet is shown, and says so in `access`."""
        found = served_models.find_enabled(model)
        if found is None:
            raise ModelNotFound()
        shown = model_object(found, served_models.checks_passed_by(request.auth.project.organization_id))
        if shown is None:
            raise ModelNotConfigured()
        return Response(shown)
