"""The permissions of keys. Closed by default: an action that names no permission is refused."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission

from gateway_site.api.errors import MethodNotAllowed, PermissionDenied

CUSTOMER_PERMISSIONS = ("inference:write", "models:read")
ADMIN_PERMISSIONS = (
    "policies:read",
    "policies:write",
    "project_api_keys:create",
    "projects:create",
    "billing:read",
    "admin_api_keys:read",
    "admin_api_keys:revoke",
)


def require(key: Any, permission: str) -> None:
    """Refuse unless `key` holds `permission`."""
    if permission not in key.permissions:
        raise PermissionDenied(f"This key does not have the permission {permission}.")


class HasPermission(BasePermission):
    """Looks up `view.required_permissions[view.action]`. An action that is not in the table is refused."""

    def has_permission(self, request: Any, view: Any) -> bool:
        if view.action in (None, "metadata"):
            raise MethodNotAllowed(request.method, view.allowed_methods)
        permission = view.required_permissions.get(view.action)
        if permission is None:
            return False
        require(request.auth, permission)
        return True
