"""
Every route of the API with what it takes to be let in, and every place in a request where an id can stand.

A route that is served and not in ROUTES fails `test_permission_matrix`, and so does one of ROUTES that is not
served or not in the document.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.admindocs.views import extract_views_from_urlpatterns, simplify_regex

from gateway_site.urls import urlpatterns
from inference.serving.routing import PathRouter

PATTERNS: list[Any] = urlpatterns
# (method, path, permission, body, status with the permission)
ROUTES: list[tuple[str, str, str, Any, int]] = [
    (
        "POST",
        "/v1/organization/projects/{project_id}/api_keys",
        "project_api_keys:create",
        {"name": "app"},
        200,
    ),
    ("POST", "/v1/organization/projects/{project_id}/archive", "projects:create", None, 200),
    ("GET", "/v1/organization/admin_api_keys", "admin_api_keys:read", None, 200),
    ("DELETE", "/v1/organization/admin_api_keys/{api_key_id}", "admin_api_keys:revoke", None, 200),
    (
        "POST",
        "/v1/organization/policies",
        "policies:write",
        {"name": "Secrets", "rule": "Is it a secret?"},
        200,
    ),
    ("GET", "/v1/organization/policies/{policy_id}", "policies:read", None, 200),
    ("PATCH", "/v1/organization/policies/{policy_id}", "policies:write", {"revision": 1}, 200),
    # Let in, and told that a draft cannot be paused.
    ("POST", "/v1/organization/policies/{policy_id}/pause", "policies:write", {"revision": 1}, 409),
    ("GET", "/v1/organization/projects/{project_id}/effective_policies", "policies:read", None, 200),
    ("GET", "/v1/organization/costs", "billing:read", None, 400),  # let in, and asked for a start_time
    # Let in, and asked for credit.
    (
        "POST",
        "/v1/chat/completions",
        "inference:write",
        {"model": "simulator/echo", "messages": [{"role": "user", "content": "Hi"}]},
        402,
    ),
    ("POST", "/v1/responses", "inference:write", {"model": "simulator/echo", "input": "Hi"}, 402),
    (
        "POST",
        "/v1/messages/count_tokens",
        "inference:write",
        {"model": "simulator/echo", "messages": [{"role": "user", "content": "Hi"}]},
        200,
    ),
    ("GET", "/v1/models", "models:read", None, 200),
    ("GET", "/v1/models/{model}", "models:read", None, 200),
]
# Whose work is in other threads, which see only what is committed.
THREADED = {"/v1/chat/completions", "/v1/responses", "/v1/messages/count_tokens"}
# Whose errors have a `type` beside them.
WRAPPED = "/v1/messages/count_tokens"
# What anybody may ask for.
PUBLIC = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json"), ("GET", "/docs/")}

# (method, path, where the id stands, its name). The model in a path is of the catalog, which is everyone's.
ID_SLOTS: list[tuple[str, str, str, str]] = [
    ("POST", "/v1/organization/projects/{project_id}/api_keys", "path", "project_id"),
    ("POST", "/v1/organization/projects/{project_id}/archive", "path", "project_id"),
    ("GET", "/v1/organization/projects/{project_id}/effective_policies", "path", "project_id"),
    ("DELETE", "/v1/organization/admin_api_keys/{api_key_id}", "path", "api_key_id"),
    ("GET", "/v1/organization/admin_api_keys", "query", "after"),
    ("GET", "/v1/organization/policies/{policy_id}", "path", "policy_id"),
    ("PATCH", "/v1/organization/policies/{policy_id}", "path", "policy_id"),
    ("POST", "/v1/organization/policies/{policy_id}/pause", "path", "policy_id"),
    ("POST", "/v1/organization/policies", "body", "project_ids"),
    ("PATCH", "/v1/organization/policies/{policy_id}", "body", "project_ids"),
    ("GET", "/v1/organization/costs", "query", "project_ids"),
    ("GET", "/v1/organization/costs", "query", "api_key_ids"),
    ("GET", "/v1/organization/costs", "query", "page"),
    ("POST", "/v1/chat/completions", "body", "policy_ids"),
    ("POST", "/v1/responses", "body", "policy_ids"),
    ("POST", "/v1/responses", "body", "previous_response_id"),
]
# Cursors, whose names do not say that they hold an id.
CURSORS = {"after", "page"}
EVERYONES = {("/v1/models/{model}", "model")}


def served_routes() -> set[tuple[str, str]]:
    """What the URL configuration and the routing ahead of it serve outside of the console."""
    served = {("POST", path) for path in PathRouter(otherwise=None)._consumers}
    for view, pattern, *_ in extract_views_from_urlpatterns(PATTERNS):
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", simplify_regex(str(pattern)))
        if not path.startswith("/admin/") and path != "/":  # the last route, which is for what is nobody's
            methods = getattr(view, "actions", None) or {"get": None}
            served |= {(method.upper(), path) for method in methods if method != "head"}
    return served


def documented_slots(routes: list[Any]) -> set[tuple[str, str, str, str]]:
    """Wherever a documented request can name a row: parameters and the body's own fields."""
    found = set()
    for route in routes:
        for parameter in route.operation.get("parameters", []):
            where, name = parameter["in"], parameter["name"]
            is_id = where == "path" or name in CURSORS or name.endswith(("_id", "_ids"))
            if where in ("path", "query") and is_id and (route.path, name) not in EVERYONES:
                found.add((route.method, route.path, where, name))
        found |= {
            (route.method, route.path, "body", name)
            for name in route.body_fields
            if name.endswith(("_id", "_ids"))
        }
    return found
