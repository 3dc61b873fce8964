"""
POST /v1/messages/count_tokens, as an ASGI application ahead of Django.

Ahead of Django as generation is, because it may ask a backend, and because a large input is read and counted
in the pool for large bodies. It runs as generation does, in a task with a deadline that ends when its client
disconnects.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from gateway_site.api.errors import ApiError, InvalidRequest, MethodNotAllowed, ProjectArchivedForUse
from gateway_site.api.headers import values_by_name
from gateway_site.database.off_loop import off_loop
from inference.dialects.messages.count_tokens import BETA_HEADER, MAX_BETA_LENGTH
from inference.dialects.messages.parse import parse
from inference.dialects.messages.request import TokenCount
from inference.serving import affinity, token_counting
from inference.serving.body_pool import BodyWork
from inference.serving.consumers import PERMISSION, read_body, require_json, without_traceback
from inference.serving.lifecycle.disconnect import wait_for_client
from inference.serving.lifecycle.request_task import RequestTask
from inference.serving.response_sender import ResponseSender
from organization.authentication import CustomerKeyAuthentication
from organization.models import ProjectKey
from organization.permissions import require

# Unspecified: messages-headers. As the SDK sends them. Any version will do, so that header is not read: the
# count is the same in all.
HEADERS = ("Content-Type", "Content-Encoding", BETA_HEADER, affinity.SESSION_HEADER, affinity.SESSION_ALIAS)


async def count_tokens(scope: Any, receive: Any, send: Any) -> None:
    if scope["method"] != "POST":
        raise MethodNotAllowed(scope["method"], ["POST"])
    key = await _customer_key(scope)
    require(key, PERMISSION)
    headers = values_by_name(scope["headers"], HEADERS)
    require_json(headers)
    _check_headers(headers)
    body = await read_body(receive)
    if body is None:
        return
    request_task = RequestTask(ResponseSender(scope, send))
    task = request_task.start(_count(request_task.sender, key, body))
    del body
    await wait_for_client(request_task, receive)
    try:
        task.result()
    except ApiError as error:
        raise without_traceback(error) from None


async def _count(sender: ResponseSender, key: ProjectKey, body: bytes) -> None:
    work = BodyWork.on(body, key.project.organization_id)
    call = await work.run(parse, body, remote_images=settings.GATEWAY_REMOTE_IMAGES)
    del body
    counted = TokenCount(await token_counting.count(call, key, work))
    await sender.send_json(msgspec.json.encode(counted))


@off_loop
def _customer_key(scope: Any) -> ProjectKey:
    # Read anew for each request: with no hold to be taken, nothing else would ask whether it is still alive.
    _, key = CustomerKeyAuthentication().authenticate(ASGIRequest(scope, BytesIO()))
    if not key.project.is_active:
        raise ProjectArchivedForUse()
    return key


def _check_headers(headers: dict[str, list[str]]) -> None:
    """Refuse a session id or beta flags out of bounds, though they change no count."""
    affinity.session_of(headers)
    if len(",".join(headers[BETA_HEADER])) > MAX_BETA_LENGTH:
        raise InvalidRequest(f"The beta flags have at most {MAX_BETA_LENGTH} characters.", param=BETA_HEADER)
