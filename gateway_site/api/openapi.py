"""The OpenAPI document: what the generator finds, with every route's errors, permission and headers."""

from __future__ import annotations

import inspect
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import force_instance
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from gateway_site.api.serializers import StrictSerializer

# Unspecified: other-status-codes. The spec shows ten error bodies for organization routes and does not
# say which; these are the ten of its table that such a route can give.
ORGANIZATION_STATUSES = (400, 401, 403, 404, 409, 413, 415, 429, 500, 503)
PROBE_STATUSES = (400, 413, 500, 503)
MEANINGS = {
    400: "Request validation failed",
    401: "Missing or invalid credential",
    403: "Credential scope or policy denied the operation",
    404: "Not found in the caller's organization",
    409: "Revision, state or idempotency conflict",
    413: "The JSON body exceeds the gateway's size limit",
    415: "The body is not application/json",
    429: "Request rate exceeded",
    500: "Unexpected gateway failure",
    503: "A required service or configuration is unavailable",
}
REQUEST_ID_HEADERS = [
    OpenApiParameter(
        name=name,
        location=OpenApiParameter.HEADER,
        type={"type": "string", "format": "uuid"},
        response=True,
        description="The gateway's id of this request, for activity records and support.",
    )
    for name in ("X-Request-ID", "request-id")
]


class ErrorBody(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    type = serializers.CharField(help_text="Policy failures use `policy_error`.")
    param = serializers.CharField(allow_null=True)
    request_id = serializers.UUIDField()
    doc_url = serializers.CharField(allow_null=True)


class ErrorEnvelope(serializers.Serializer):
    error = ErrorBody()


class GatewaySchema(AutoSchema):
    """Adds to every operation what its view says in `required_permissions` and what every route answers."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        operation = super().get_operation(*args, **kwargs)
        permission = self._permission()
        if operation and permission:
            operation["x-permission"] = permission
            sentence = f"Needs the permission `{permission}`."
            operation["description"] = f"{operation.get('description', '')}\n\n{sentence}".strip()
        return operation

    def get_description(self) -> str:  # type: ignore[override]
        handler = getattr(self.view, getattr(self.view, "action", ""), None)
        return inspect.getdoc(handler) or ""

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        statuses = ORGANIZATION_STATUSES if self._permission() else PROBE_STATUSES
        for status in map(str, statuses):
            bodies[status] = self._get_response_for_code(ErrorEnvelope, status, direction=direction)
            bodies[status]["description"] = MEANINGS[int(status)]
        return bodies

    def _is_list_view(self, serializer: Any = None) -> bool:
        return False  # pages are described as they are, where a guess would wrap them in an array

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        schema = super()._map_serializer(serializer, direction, bypass_extensions)
        if isinstance(force_instance(serializer), StrictSerializer):
            schema["additionalProperties"] = False
        return schema

    def get_override_parameters(self) -> Any:
        return [*super().get_override_parameters(), *REQUEST_ID_HEADERS]

    def _permission(self) -> str | None:
        table: dict[str, str] = getattr(self.view, "required_permissions", {})
        return table.get(getattr(self.view, "action", ""))


class AdminKeyScheme(OpenApiAuthenticationExtension):
    target_class = "organization.authentication.AdminKeyAuthentication"
    name = "adminKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "gwa_...",
            "description": "An organization's Admin API key.",
        }


def finish_document(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Drops the generator's own marks, which mean nothing to a reader."""
    waiting: list[Any] = [result]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            node.pop("x-spec-enum-id", None)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return result
