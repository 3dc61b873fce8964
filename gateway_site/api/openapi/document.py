"""The OpenAPI document: what the generator finds, with every route's errors, permission and headers."""

from __future__ import annotations

import inspect
from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import force_instance
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from gateway_site.api.serializers import StrictSerializer

# Unspecified: other-status-codes. The spec shows ten error bodies for organization routes and does not
# say which; these are the ten of its table that such a route can give.
ORGANIZATION_STATUSES = (400, 401, 403, 404, 409, 413, 415, 429, 500, 503)
# Unspecified: model-status-codes. Those of its table that reading a model can give.
MODEL_STATUSES = (400, 401, 403, 404, 413, 429, 500, 503)
# As the spec's table has them.
GENERATION_STATUSES = (400, 401, 402, 403, 404, 409, 413, 415, 422, 429, 500, 501, 502, 503, 504)
# Unspecified: other-status-codes. Fourteen error bodies are shown for responses: the same, less the conflict
# that nothing there can be in. Twelve for token counting, which holds no credit and lacks no option either.
RESPONSE_STATUSES = tuple(status for status in GENERATION_STATUSES if status != 409)
COUNT_STATUSES = tuple(status for status in RESPONSE_STATUSES if status not in (402, 501))
PROBE_STATUSES = (400, 413, 500, 503)
MEANINGS = {
    400: "Request validation failed",
    401: "Missing or invalid credential",
    402: "Available credit or spending cap cannot cover admission",
    403: "Credential scope or policy denied the operation",
    404: "Not found in the caller's organization",
    409: "Revision, state or idempotency conflict",
    413: "The JSON body exceeds the gateway's size limit",
    415: "The body is not application/json",
    422: "Provider request validation failed",
    429: "Request rate or concurrency exceeded",
    500: "Unexpected gateway failure",
    501: "The backend does not implement the option",
    502: "Backend request failed",
    503: "A required service or configuration is unavailable",
    504: "Inference deadline exceeded",
}
# The mark of what the spec does not have: an operation, a header or a field of ours.
EXTENSION = {"x-extension": True}
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


class WrappedErrorEnvelope(ErrorEnvelope):
    """As token counting has it."""

    type = serializers.ChoiceField(["error"])


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
        for status in map(str, self._error_statuses()):
            envelope = getattr(self.view, "error_envelope", ErrorEnvelope)
            bodies[status] = self._get_response_for_code(envelope, status, direction=direction)
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

    def _error_statuses(self) -> tuple[int, ...]:
        usual = ORGANIZATION_STATUSES if self._permission() else PROBE_STATUSES
        return getattr(self.view, "error_statuses", usual)

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


class CustomerKeySchemes(OpenApiAuthenticationExtension):
    target_class = "organization.authentication.CustomerKeyAuthentication"
    name = ["customerKey", "customerHeaderKey"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either, where one object would mean both

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, Any]]:
        description = "A project's customer key."
        return [
            {"type": "http", "scheme": "bearer", "bearerFormat": "gwk_...", "description": description},
            # Unspecified: customer-header-key.
            {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": description},
        ]


def finish_document(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Drops extensions that are switched off, and the generator's own marks, which tell a reader nothing."""
    if not settings.GATEWAY_EXTENSIONS:
        _drop_extensions(result)
        result["paths"] = {path: operations for path, operations in result["paths"].items() if operations}
    waiting: list[Any] = [result]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            node.pop("x-spec-enum-id", None)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return result


def _drop_extensions(node: Any) -> None:
    """Delete every operation, parameter, header and field that is marked as an extension."""
    if isinstance(node, dict):
        for name in [name for name, value in node.items() if _is_extension(value)]:
            del node[name]
        for value in node.values():
            _drop_extensions(value)
    elif isinstance(node, list):
        node[:] = [value for value in node if not _is_extension(value)]
        for value in node:
            _drop_extensions(value)


def _is_extension(node: Any) -> bool:
    return isinstance(node, dict) and "x-extension" in node
