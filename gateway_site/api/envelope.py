"""The one place where an error becomes bytes."""

from __future__ import annotations

import json
from typing import Any

from gateway_site.api import request_id
from gateway_site.api.errors import ApiError

# The Messages SDK finds an error by a `type` beside it; the spec wraps this route alone.
TOKEN_COUNT_PATH = "/v1/messages/count_tokens"  # noqa: S105


def body_of(error: ApiError, *, path: str) -> dict[str, Any]:
    """The envelope as an object, wrapped as the route at `path` wraps it."""
    envelope = {
        "error": {
            "code": error.code,
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "request_id": request_id.current(),
            "doc_url": None,
        }
    }
    return {"type": "error", **envelope} if path.rstrip("/") == TOKEN_COUNT_PATH else envelope


def render(error: ApiError, *, path: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request for `path` that ended in `error`."""
    body = json.dumps(body_of(error, path=path)).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    return error.status, headers, body
